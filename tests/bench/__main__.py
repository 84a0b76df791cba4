"""`python -m tests.bench`: measure, print Markdown. Progress goes to standard error."""

import argparse
import gc
import os
import platform
import resource
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import uvloop

from . import startup
from .install import UnavailableError
from .peers import NAMES, NONE, OURS, SLOW, Peer, prepare
from .report import Setting, report
from .results import Results
from .stage import Cores, UnfinishedError, cores, stage
from .workloads import WORKLOADS, Numbers, Workload

_clock = time.monotonic_ns  # noqa: TID251  # an entry point
RESULTS = Path(__file__).with_name("RESULTS.md")
SLOW_ROUNDS = 2
STARTS = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    _many_files()
    where = cores()
    os.sched_setaffinity(0, {where.load})
    peers, unavailable = _prepare(arguments.only, quick=arguments.quick)
    results = Results()
    chosen = [
        workload
        for workload in WORKLOADS
        if workload.name in (arguments.workloads or [workload.name])
        and (arguments.workloads or workload.quick or not arguments.quick)
    ]
    begin = _clock()
    for workload in chosen:
        for row in peers:
            if row in workload.skip:
                results.cell(workload.name, row).note = workload.skip[row]
        rounds = arguments.rounds or (1 if arguments.quick else workload.rounds)
        for number in range(rounds):
            _say(f"{(_clock() - begin) / 1e9:6.0f} s  {workload.name}, {number + 1} of {rounds}")
            found, gone = _round(workload, number, peers, results, where, arguments.quick)
            results.add(workload.name, found)
            for row, reason in gone.items():
                unavailable[row] = reason
                del peers[row]
    cold = None
    if OURS in peers and (not arguments.workloads or "start" in arguments.workloads):
        _say("start")
        try:
            cold = startup.measure(peers[OURS], where, _clock, 3 if arguments.quick else STARTS)
        except UnavailableError as reason:
            unavailable[f"{OURS}, start"] = str(reason)
    command = " ".join(["python -m tests.bench", *(sys.argv[1:] if argv is None else argv)])
    versions = {row: peer.version for row, peer in peers.items() if row != NONE}
    setting = Setting(command, arguments.date, _machine(where), versions, unavailable)
    text = report(results, cold, setting)
    print(text)
    if arguments.write:
        RESULTS.write_text(text)
    return 0


def _round(
    workload: Workload,
    number: int,
    peers: dict[str, Peer],
    results: Results,
    where: Cores,
    quick: bool,
) -> tuple[dict[str, Numbers], dict[str, str]]:
    """Every row once, another one first each time; and those that do not start, and why."""
    found: dict[str, Numbers] = {}
    gone: dict[str, str] = {}
    names = list(peers)
    for row in names[number % len(names) :] + names[: number % len(names)]:
        if row in workload.skip or (row in SLOW and number >= SLOW_ROUNDS):
            continue
        try:
            found[row] = uvloop.run(_run(workload, peers[row], where, seed=number, quick=quick))
        except UnfinishedError as reason:
            results.cell(workload.name, row).note = str(reason)
            _say(f"          {row}: {reason}")
        except UnavailableError as reason:
            gone[row] = str(reason)
            _say(f"          {row}: {reason}")
    return found, gone


async def _run(workload: Workload, peer: Peer, where: Cores, *, seed: int, quick: bool) -> Numbers:
    async with stage(peer, where, _clock, seed=seed, quick=quick) as this:
        # A pass of the collector in the load would look like a delay of the proxy.
        gc.collect()
        gc.disable()
        try:
            return await workload.run(this)
        finally:
            gc.enable()


def _prepare(only: Sequence[str] | None, *, quick: bool) -> tuple[dict[str, Peer], dict[str, str]]:
    peers: dict[str, Peer] = {}
    unavailable: dict[str, str] = {}
    for row in NAMES:
        if row != NONE and only and row not in only:
            continue
        if quick and not only and row in SLOW:
            unavailable[row] = "left out of the quick pass"
            continue
        try:
            peers[row] = prepare(row, os.environ, _say)
        except UnavailableError as reason:
            unavailable[row] = str(reason)
            _say(f"{row}: {reason}")
    return peers, unavailable


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    add = parser.add_argument
    names = ", ".join([*(workload.name for workload in WORKLOADS), "start"])
    add("--quick", action="store_true", help="one short round of the main workloads")
    add("--only", type=_listed(NAMES), metavar="ROWS", help=f"of {', '.join(NAMES)}")
    add(
        "--workloads",
        type=_listed([*(workload.name for workload in WORKLOADS), "start"]),
        metavar="NAMES",
        help=f"of {names}",
    )
    add("--rounds", type=int, metavar="N", help="rounds of each workload (1 to 5, by its length)")
    add("--date", default="no date given", help="what the report says about the day")
    add("--write", action="store_true", help=f"write {RESULTS.name}, too")
    return parser


class _listed:  # noqa: N801  # argparse calls it like a function and shows its name
    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def __call__(self, text: str) -> list[str]:
        """The names in a list with commas. Raises `ArgumentTypeError` for one that is not known."""
        names = text.split(",")
        for name in names:
            if name not in self._known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(self._known)}")
        return names


def _many_files() -> None:
    """1,000 streams are 2,000 descriptors here and in the proxy."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 16_384 if most == resource.RLIM_INFINITY else min(16_384, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _machine(where: Cores) -> str:
    shared = " (the same one: not comparable)" if where.load == where.proxy else ""
    return (
        f"{os.cpu_count()} cores, load on {where.load}, proxy on {where.proxy}{shared}; "
        f"{platform.system()} {platform.release()} {platform.machine()}; "
        f"Python {platform.python_version()}, uvloop {version('uvloop')}"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
