"""proxy/serve/log.py: whole lines, whatever happens to the file, and never in the way.

The writer has a thread of its own; tests wait for it with `flush` or `close`.
"""

import contextlib
import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.record import from_json, to_json
from proxy.serve.log import RecordLog
from tests.records import record

SECOND = 1_000_000_000


class Time:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100 * SECOND

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


class Bench:
    """A log, its clock, and what it announced."""

    def __init__(self, target: str | int, **options: object) -> None:
        self.time = Time()
        self.said: list[str] = []
        self.log = RecordLog(target, announce=self.said.append, clock=self.time, **options)  # type: ignore[arg-type] # options of a test
        self._numbers = iter(range(1, 1_000_000))

    def emit(self, count: int = 1) -> None:
        """Emit records numbered on, and let each be written by itself."""
        for _ in range(count):
            self.log.emit(record(request_id=str(next(self._numbers))))
            self.settle()

    def settle(self) -> None:
        """Wait until the writer has nothing left to do."""
        assert self.log.flush(10)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(target: "str | int | Path", **options: object) -> Bench:
        made.append(Bench(target if isinstance(target, int) else str(target), **options))
        return made[-1]

    yield make
    for one in made:
        one.log.close(10)


def numbers(path: Path) -> list[str]:
    """The request ids of a file in which every line has to be a record."""
    data = path.read_bytes()
    assert data == b"" or data.endswith(b"\n")
    return [from_json(line).request_id for line in data.splitlines() if line]


def test_one_line_per_record(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """Each record is its JSON and a newline, in the order of emitting, in a private file."""
    path = tmp_path / "new" / "log.jsonl"
    b = bench(path)
    records = [record(request_id=str(n), model="mödel\n") for n in range(600)]
    for one in records:
        b.log.emit(one)
    assert b.log.close(10)
    assert path.read_bytes() == b"".join(to_json(one) + b"\n" for one in records)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (b.log.dropped, b.said) == (0, [])


def test_an_existing_log_is_continued(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """A restart appends; a line torn by a crash is ended first."""
    path = tmp_path / "log"
    path.write_bytes(to_json(record(request_id="old")) + b'\n{"schema":1,"ts":"2026-')
    b = bench(path)
    b.emit()
    lines = path.read_bytes().splitlines()
    assert lines[1] == b'{"schema":1,"ts":"2026-'
    assert from_json(lines[2]).request_id == "1"


def test_rename_and_create(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """t=0 rotated by rename; within a second of the next record the new file is used."""
    path, old = tmp_path / "log", tmp_path / "log.1"
    b = bench(path)
    b.emit()
    path.rename(old)
    path.touch()
    b.time.pass_seconds(0.5)
    b.emit()  # not looked at yet: still whole, in the old file
    b.time.pass_seconds(0.6)
    b.emit()
    assert (numbers(old), numbers(path)) == (["1", "2"], ["3"])
    assert (b.log.dropped, b.said) == (0, [])


def test_rename_without_create(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """The log makes the new file itself, mode 0600."""
    path = tmp_path / "log"
    b = bench(path)
    b.settle()
    path.rename(tmp_path / "log.1")
    b.time.pass_seconds(1)
    b.emit()
    assert numbers(path) == ["1"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_reopen_on_demand(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """SIGHUP: what was queued before goes to the old file, the next record to the new one."""
    path, old = tmp_path / "log", tmp_path / "log.1"
    b = bench(path)
    b.log.emit(record(request_id="before"))
    b.settle()
    path.rename(old)
    b.log.reopen()
    b.log.emit(record(request_id="after"))
    b.settle()
    assert (numbers(old), numbers(path)) == (["before"], ["after"])


def test_truncation_in_place(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """copytruncate: the next record stands at the beginning, no hole of zeros."""
    path = tmp_path / "log"
    b = bench(path)
    b.emit(2)
    os.truncate(path, 0)
    b.emit()
    assert numbers(path) == ["3"]


def test_two_writers_share_a_file(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """Lines of two processes do not mix."""
    path = tmp_path / "log"
    first, second = bench(path), bench(path)
    for n in range(200):
        first.log.emit(record(request_id=f"a{n}", model="m" * 3000))
        second.log.emit(record(request_id=f"b{n}"))
    first.log.close(10)
    second.log.close(10)
    found = numbers(path)
    assert [one for one in found if one.startswith("a")] == [f"a{n}" for n in range(200)]
    assert [one for one in found if one.startswith("b")] == [f"b{n}" for n in range(200)]


class Disk:
    """`os.write` with a limited amount of room."""

    def __init__(self) -> None:
        self.room: int | None = None

    def write(self, fd: int, data: bytes) -> int:
        if self.room is None:
            return os.write(fd, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = os.write(fd, data[: self.room])
        self.room -= taken
        return taken


def test_full_disk(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """The disk fills up inside a record: it is announced once, records are dropped and counted,
    and when space returns logging resumes with a whole line and says how many were lost."""
    path, disk = tmp_path / "log", Disk()
    b = bench(path, write=disk.write)
    b.emit()
    disk.room = 100
    b.emit(3)  # the first is torn, the others find no room
    assert b.log.dropped == 3
    assert len(b.said) == 1
    assert "No space left on device" in b.said[0]

    b.time.pass_seconds(1)
    b.emit(2)  # tried again once, still full
    assert b.log.dropped == 5
    assert len(b.said) == 1

    disk.room = None
    b.time.pass_seconds(0.5)
    b.emit()  # too early to try again
    assert b.log.dropped == 6
    b.time.pass_seconds(0.5)
    b.emit()
    assert b.log.dropped == 6
    assert len(b.said) == 2
    assert b.said[1].endswith("dropped meanwhile: 6")

    lines = path.read_bytes().splitlines()
    assert from_json(lines[0]).request_id == "1"
    assert len(lines[1]) == 100
    assert [from_json(line).request_id for line in lines[2:]] == ["8"]


def test_a_short_write_tears_one_record(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """Of ten lines in one write, those that were written whole count, one is torn, the rest follow
    on lines of their own."""
    path = tmp_path / "log"
    size = len(to_json(record(request_id="0"))) + 1
    limits = iter([size, size * 4 + 17])
    gate = threading.Event()

    def write(fd: int, data: bytes) -> int:
        gate.wait(10)
        return os.write(fd, data[: next(limits, len(data))])

    b = bench(path, write=write)
    b.log.emit(record(request_id="x"))  # occupies the writer while the ten are queued
    for n in range(10):
        b.log.emit(record(request_id=str(n)))
    gate.set()
    assert b.log.close(10)
    lines = path.read_bytes().splitlines()
    whole = [from_json(line).request_id for line in lines if line.endswith(b"}")]
    assert whole == ["x", "0", "1", "2", "3", "5", "6", "7", "8", "9"]
    assert b.log.dropped == 1
    assert b.said == [f"records not written to {path}: 1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6000), max_size=20))
def test_any_short_writes_leave_whole_lines(limits: list[int]) -> None:
    """However the kernel cuts writes up, every line is a record, a torn piece, or blank, and
    written and dropped records add up."""
    written = bytearray()
    cuts = iter(limits)

    def write(_fd: int, data: bytes) -> int:
        count = min(next(cuts, len(data)), len(data))
        written.extend(data[:count])
        return count

    log = RecordLog(1, announce=lambda _: None, clock=Time(), write=write)
    for n in range(12):
        log.emit(record(request_id=str(n)))
    assert log.close(10)
    whole = []
    for line in bytes(written).split(b"\n"):
        with contextlib.suppress(ValueError):
            whole.append(int(from_json(line).request_id))
    assert whole == sorted(set(whole))
    assert len(whole) + log.dropped >= 12
    assert log.dropped <= len(limits)


def test_a_real_size_limit(tmp_path: Path) -> None:
    """The kernel's own short write and error: whole lines up to the limit, the rest is dropped."""
    code = (
        "import resource, sys, time\n"
        "from proxy.serve.log import RecordLog\n"
        "from tests.records import record\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))\n"
        "log = RecordLog(sys.argv[1], announce=lambda s: print(s, file=sys.stderr),\n"
        "    clock=time.monotonic_ns)\n"
        "for n in range(20): log.emit(record(request_id=str(n)))\n"
        "log.close(10)\n"
        "print(log.dropped)\n"
    )
    path = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    lines = path.read_bytes().split(b"\n")
    kept = [from_json(line).request_id for line in lines[:-1]]
    assert kept == [str(n) for n in range(len(kept))]
    assert path.stat().st_size == 5000
    assert int(done.stdout) == 20 - len(kept)
    assert done.stderr.count("cannot write records") == 1
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 5000


def test_no_folder_then_a_folder(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """The folder is removed while the proxy runs: dropped, counted, announced once; when it is
    back, logging resumes. It is not made again: it may have been a disk that is gone."""
    folder = tmp_path / "logs"
    b = bench(folder / "log")
    b.emit()
    (folder / "log").unlink()
    folder.rmdir()
    b.time.pass_seconds(1)
    b.emit(2)
    b.time.pass_seconds(1)
    b.emit()
    assert b.log.dropped == 3
    assert len(b.said) == 1
    assert not folder.exists()
    folder.mkdir()
    b.time.pass_seconds(1)
    b.emit()
    assert numbers(folder / "log") == ["5"]
    assert b.said[1].endswith("dropped meanwhile: 3")


def test_a_path_that_cannot_be_opened(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """A file in the way of a folder, a FIFO that nobody reads: announced at the start."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "file" / "log", tmp_path / "fifo"):
        b = bench(path)
        b.emit(2)
        assert b.log.dropped == 2
        assert len(b.said) == 1
        assert b.said[0].startswith(f"cannot write records to {path}: ")


def test_a_closed_pipe(bench: Callable[..., Bench]) -> None:
    """`ttft serve --log - | head`: the reader goes away, traffic does not notice."""
    reader, writer = os.pipe()
    b = bench(writer)
    b.emit()
    assert from_json(os.read(reader, 65536).strip()).request_id == "1"
    os.close(reader)
    b.emit(3)
    assert b.log.dropped == 3
    assert len(b.said) == 1
    assert "Broken pipe" in b.said[0]
    assert b.log.close(10)
    os.close(writer)


def test_a_pipe_that_somebody_made_non_blocking(bench: Callable[..., Bench]) -> None:
    """A slow reader of a shared stdout gets every record whole."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    b = bench(writer)
    for n in range(200):
        b.log.emit(record(request_id=str(n)))
    received = bytearray()
    while received.count(b"\n") < 200:
        received += os.read(reader, 1000)
    assert [from_json(line).request_id for line in bytes(received).splitlines()] == [
        str(n) for n in range(200)
    ]
    assert b.log.dropped == 0
    os.close(reader)
    b.log.close(10)
    os.close(writer)


def test_a_slow_disk_blocks_only_the_writer(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """While a write hangs, `emit` returns at once; what the queue cannot hold is dropped, counted,
    and announced when the disk is back."""
    gate, entered = threading.Event(), threading.Event()

    def write(fd: int, data: bytes) -> int:
        entered.set()
        gate.wait(10)
        return os.write(fd, data)

    path = tmp_path / "log"
    b = bench(path, write=write, limit=5)
    b.log.emit(record(request_id="hangs"))
    assert entered.wait(10)
    for n in range(8):
        b.log.emit(record(request_id=str(n)))
    assert b.log.dropped == 3
    gate.set()
    assert b.log.close(10)
    assert numbers(path) == ["hangs", "0", "1", "2", "3", "4"]
    assert b.said == ["the log was too slow; records dropped: 3"]


def test_close_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A disk that hangs at the end costs the given time and no more."""
    gate = threading.Event()

    def write(fd: int, data: bytes) -> int:
        gate.wait(10)
        return os.write(fd, data)

    b = Bench(str(tmp_path / "log"), write=write)
    b.log.emit(record())
    assert not b.log.close(0.05)
    assert "lost" in b.said[0]
    gate.set()


def test_close_writes_what_is_queued_and_then_drops(tmp_path: Path) -> None:
    """Records that come after the end are counted as lost."""
    path = tmp_path / "log"
    b = Bench(str(path))
    b.log.emit(record(request_id="last"))
    assert b.log.close(10)
    b.log.emit(record(request_id="late"))
    assert numbers(path) == ["last"]
    assert b.log.dropped == 1


def test_the_end_is_a_last_chance(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """In trouble at the end, the log is tried once more, however short the wait."""
    path, disk = tmp_path / "log", Disk()
    disk.room = 0
    b = bench(path, write=disk.write)
    b.emit()
    disk.room = None
    b.log.emit(record(request_id="last"))
    b.log.close(10)
    assert b.log.dropped in (1, 2)  # 1 when the last record and the end were taken together
    assert numbers(path) in (["last"], [])


def test_a_record_that_cannot_be_encoded(tmp_path: Path, bench: Callable[..., Bench]) -> None:
    """It is dropped, said once, and the others are written."""
    path = tmp_path / "log"
    b = bench(path)
    b.log.emit(record(request_id="bad", model="\ud800"))
    b.log.emit(record(request_id="bad", flags=[object()]))
    b.emit()
    assert numbers(path) == ["1"]
    assert b.log.dropped == 2
    assert len(b.said) == 1
    assert "could not be encoded" in b.said[0]


def test_a_failing_announcement_stops_nothing(tmp_path: Path) -> None:
    """stderr may be closed, too."""

    def announce(_sentence: str) -> None:
        raise ValueError("closed")

    log = RecordLog(str(tmp_path / "x" / ".." / "log"), announce=announce, clock=Time())
    log.emit(record(model="\ud800"))
    log.emit(record(request_id="1"))
    assert log.close(10)
    assert log.dropped == 1
