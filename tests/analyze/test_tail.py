"""proxy/analyze/tail.py: one line per finished request."""

import io
import os
import threading
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest

from proxy.analyze.tail import Options, tail
from proxy.record import Outcome, to_json
from tests.records import record


def line(number: int | str, **changes: object) -> bytes:
    return to_json(record(request_id=str(number), **changes)) + b"\n"


class Enough(Exception):  # noqa: N818  # not an error: the test has seen enough
    pass


def run(
    *files: Path | str,
    steps: "list[Callable[[], object]] | None" = None,
    stdin: bytes = b"",
    **options: object,
) -> tuple[list[str], str]:
    """What was printed and what was complained of; each idle look plays one step."""
    out, err = io.StringIO(), io.StringIO()
    script = iter(steps or [])

    def sleep(_seconds: float) -> None:
        step = next(script, None)
        if step is None:
            raise Enough
        step()

    def go() -> int:
        return tail(
            [str(file) for file in files],
            Options(tz=UTC, **options),  # type: ignore[arg-type]  # options of a test
            out=out,
            err=err,
            stdin=io.BytesIO(stdin),
            clock=lambda: 0,
            sleep=sleep,
        )

    if options.get("follow", True) and "-" not in files:
        with pytest.raises(Enough):
            go()
    else:
        assert go() == 0
    return out.getvalue().splitlines(), err.getvalue()


def append(path: Path, data: bytes) -> Callable[[], None]:
    def step() -> None:
        with path.open("ab") as file:
            file.write(data)

    return step


def test_last_lines_then_what_comes(tmp_path: Path) -> None:
    """t=0 the last two of three; then each record as it is finished."""
    path = tmp_path / "log"
    path.write_bytes(line(1, model="a") + line(2, model="b") + line(3, model="c"))
    shown, complaints = run(path, last=2, steps=[append(path, line(4, model="d"))])
    assert [text.split()[3] for text in shown] == ["b", "c", "d"]
    assert complaints == ""


def test_what_is_there_shares_its_columns(tmp_path: Path) -> None:
    """A long name at the end of the batch makes room in its first line."""
    path = tmp_path / "log"
    path.write_bytes(line(1, model="m") + line(2, model="a-longer-name"))
    shown, _ = run(path)
    assert shown[0].index("ttft") == shown[1].index("ttft")


def test_no_follow(tmp_path: Path) -> None:
    """It ends; `last` counts from the end, None is everything."""
    path = tmp_path / "log"
    path.write_bytes(b"".join(line(n) for n in range(2500)))
    assert len(run(path, follow=False)[0]) == 10
    assert len(run(path, follow=False, last=None)[0]) == 2500
    assert run(path, follow=False, last=0)[0] == []


def test_several_files_are_merged_by_time(tmp_path: Path) -> None:
    """The newest of all files together."""
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(line(1, ts="2026-03-01T00:00:01Z") + line(3, ts="2026-03-01T00:00:03Z"))
    b.write_bytes(line(2, ts="2026-03-01T00:00:02Z") + line(4, ts="2026-03-01T00:00:04Z"))
    for follow in (True, False):
        shown, _ = run(a, b, last=3, follow=follow)
        assert [text[:8] for text in shown] == ["00:00:02", "00:00:03", "00:00:04"]


def test_json(tmp_path: Path) -> None:
    """The lines themselves, fields that this version does not know included."""
    path = tmp_path / "log"
    newer = line(1).replace(b'{"schema":1', b'{"schema":1,"later":"\xc3\xa4"')
    path.write_bytes(newer + b"noise\n")
    shown, _ = run(path, follow=False, json=True)
    assert shown == [newer.decode().rstrip()]


def test_bad_lines_are_counted(tmp_path: Path) -> None:
    """The first few are named, and never quoted; the others are shown all the same."""
    path = tmp_path / "log"
    path.write_bytes(b"sk-secret\n" * 5 + line(1))
    shown, complaints = run(path, follow=False)
    assert len(shown) == 1
    assert complaints.splitlines() == [
        f"ttft tail: {path}:1: not a record",
        f"ttft tail: {path}:2: not a record",
        f"ttft tail: {path}:3: not a record",
        "ttft tail: 5 lines skipped",
    ]


def test_stdin_and_pipes_are_read_to_their_end(tmp_path: Path) -> None:
    """They cannot be followed: all that comes is shown as it comes; without following, the last."""
    assert len(run("-", stdin=line(1) + line(2), last=1)[0]) == 2
    assert len(run("-", stdin=line(1) + line(2), last=1, follow=False)[0]) == 1
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(line(1),))
    writer.start()
    assert len(run(fifo, follow=False)[0]) == 1
    writer.join()


def test_a_hostile_record_is_one_line(tmp_path: Path) -> None:
    """Names are shown without what a terminal would obey."""
    path = tmp_path / "log"
    path.write_bytes(line(1, model="a\x1b]0;b\x07\nc", outcome=Outcome.TIMEOUT, ended_in="\r"))
    shown, _ = run(path, follow=False)
    assert len(shown) == 1
    assert shown[0].isprintable()


def test_a_missing_file(tmp_path: Path) -> None:
    """Waited for when following, an error otherwise."""
    path = tmp_path / "log"
    assert len(run(path, steps=[append(path, line(1))])[0]) == 1
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "none", follow=False)
