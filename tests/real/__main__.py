"""`python -m tests.real`: install, start, ask, compare, print. See the package's docstring."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tests.real import checks
from tests.real.checks import NEAR_IN_BURST_MS, NEAR_MS, Row
from tests.real.install import PINS, Environment, UnavailableError, prepare
from tests.real.plan import BURST, DIRECT, LONG, LONG_AGAIN, PAIRS, PROXY, Seen, steps
from tests.real.processes import ROOT, bare, deferred, model_server, proxy_server
from tests.real.table import table

PASSED, FAILED, SKIPPED = 0, 1, 77
FOLDER = ROOT / ".cache" / "real"
ASKING_S = 900.0
"""How long all requests together may take."""


def main(env: Mapping[str, str] = os.environ, folder: Path = FOLDER) -> int:
    """The whole proof. Returns the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        environment = prepare(folder, env, print)
        return _prove(environment, folder)
    except UnavailableError as reason:
        print(f"SKIPPED, which is not passed: {reason}")
        return SKIPPED


def _prove(environment: Environment, folder: Path) -> int:
    log = folder / "records.jsonl"
    log.unlink(missing_ok=True)
    with ExitStack() as stack:
        server = stack.enter_context(model_server(environment, folder))
        url = stack.enter_context(proxy_server(server.url, folder, log))
        waiting = stack.enter_context(deferred(server))
        print(f"asking {server.url} directly and through {url} (one to two minutes)")
        seen = _ask(environment, folder, {DIRECT: server.url, PROXY: url})
    records, complaints = checks.read_log(log.read_bytes().splitlines())
    names = [one.name for one in seen if one.via == PROXY]
    complaints += checks.of_names(records, names)

    by_label = {record.label: record for record in records}
    through = {one.name: one for one in seen if one.via == PROXY}
    # The last direct call of a name counts; the first one warmed up.
    direct = {one.name: one for one in seen if one.via == DIRECT}
    rows = [
        Row(ask, by_label[ask.name], through[ask.name], direct.get(ask.name))
        for ask in (*PAIRS, *BURST, LONG, LONG_AGAIN)
        if ask.name in by_label
    ]
    alone = [row for row in rows if row.ask not in BURST]
    burst = [row for row in rows if row.ask in BURST]
    for row in rows:
        complaints += checks.of_row(row, near_ms=NEAR_IN_BURST_MS if row in burst else NEAR_MS)
    complaints += checks.of_queue(alone, burst, max(waiting, default=0))
    outputs = {path.name: path.read_text() for path in (log, folder / "proxy.log")}
    complaints += checks.of_secrets(outputs, rows)
    return _report(rows, complaints, max(waiting, default=0), folder)


def _ask(environment: Environment, folder: Path, bases: Mapping[str, str]) -> list[Seen]:
    """Run the clients in their own environment."""
    plan = {**bases, "steps": [[asdict(call) for call in step] for step in steps()]}
    done = subprocess.run(
        [str(environment.python), "-m", "tests.real.clients"],
        cwd=ROOT,
        env=bare(folder),
        input=json.dumps(plan),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=ASKING_S,
    )
    return [Seen(**json.loads(line)) for line in done.stdout.splitlines()]


def _report(rows: Sequence[Row], complaints: Sequence[str], deferred: float, folder: Path) -> int:
    """Print and keep what was found."""
    pins = ", ".join(f"{name} {version}" for name, version in PINS.items())
    lines = ["", pins, "", table(rows), ""]
    lines.append(f"Requests that the server itself counted as waiting, at most: {deferred:.0f}")
    lines += [f"FAILED  {complaint}" for complaint in complaints]
    lines.append(
        f"FAILED: {len(complaints)} complaints about {len(rows)} requests"
        if complaints
        else f"PASSED: {len(rows)} requests, one valid record each; account, text, tokens agree"
    )
    text = "\n".join(lines)
    print(text)
    (folder / "table.txt").write_text(text + "\n")
    return FAILED if complaints else PASSED


if __name__ == "__main__":
    sys.exit(main())
