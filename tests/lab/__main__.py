"""`python -m tests.lab`: run the parts, print the report. See the package's docstring."""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from proxy import __version__
from tests.lab import path, shared, truth, witness
from tests.lab.report import Part

RESULTS = Path(__file__).with_name("RESULTS.md")
LIBRARIES = ("uvloop", "uvicorn", "httptools", "httpx", "msgspec")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done in each part."""

    truth: int
    path_rounds: int
    path_rtts_ms: tuple[float, ...]
    witness: int
    witness_rounds: int
    shared: int


FULL = Sizes(2000, 4, path.RTTS_MS, 500, 5, 400)
QUICK = Sizes(200, 2, path.RTTS_MS[:2], 100, 2, 100)

PARTS: Mapping[str, Callable[[Path, Sizes], Part]] = {
    "truth": lambda folder, sizes: truth.run(folder, sizes.truth),
    "path": lambda folder, sizes: path.run(folder, sizes.path_rounds, sizes.path_rtts_ms),
    "witness": lambda folder, sizes: witness.run(folder, sizes.witness, sizes.witness_rounds),
    "shared": lambda folder, sizes: shared.run(folder, sizes.shared),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for. Returns 0 when no goal was missed, else 1."""
    asked = _arguments(arguments)
    sizes = QUICK if asked.quick else FULL
    heading = _heading(asked)
    print(heading, flush=True)
    sections, met = [heading], True
    for name in asked.only:
        with tempfile.TemporaryDirectory(prefix="ttft-lab-") as folder:
            part = PARTS[name](Path(folder), sizes)
        met = met and part.met
        sections.append(part.markdown())
        print("\n" + sections[-1], flush=True)
    if asked.write:
        RESULTS.write_text("\n\n".join(sections) + "\n")
    return 0 if met else 1


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab", description="Measure the error of the instrument."
    )
    parser.add_argument("--quick", action="store_true", help="fewer requests, under five minutes")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name}")
    parser.add_argument(
        "--only",
        metavar="PARTS",
        type=_parts,
        default=list(PARTS),
        help=f"some of {','.join(PARTS)}",
    )
    return parser.parse_args(arguments)


def _parts(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(PARTS)}")
    return names


def _heading(asked: argparse.Namespace) -> str:
    command = "python -m tests.lab"
    command += " --quick" if asked.quick else ""
    if list(asked.only) != list(PARTS):
        command += f" --only {','.join(asked.only)}"
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return "\n".join(
        (
            "# The error of the instrument",
            "",
            f"- command: `{command}`",
            f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",  # noqa: TID251  # an entry point
            (
                f"- versions: ttft {__version__}{_commit()}, Python {platform.python_version()}, "
                f"{libraries}"
            ),
            (
                f"- machine: {_processor()}, {os.cpu_count()} cores, {platform.system()} "
                f"{platform.release()}; load average at the start {os.getloadavg()[0]:.2f}"
            ),
        )
    )


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=RESULTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _stop(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    # Namespaces and processes are cleared away whatever ends the run.
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
