"""Log files to records, whole or as they grow.

Reading never fails on what is in a file: every line is a `Record` or a `BadLine` that says where
and why. Following waits for the newline of a half-written line, finishes a renamed file before its
successor, and starts again when a file was truncated. Clock and sleep are handed in.
"""

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from proxy.account import Clock
from proxy.record import SCHEMA_VERSION, Record, from_json

POLL_S = 0.1
GRACE_NS = 3_000_000_000
"""How long a renamed file is read on: its writer looks at the path once a second."""
_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, without its newline. `fault` says why there is none to read."""

    file: str
    number: int
    data: bytes
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not a record. Never quotes the line."""

    file: str
    line: int
    reason: str


def read(files: Sequence[str], stdin: BinaryIO) -> Iterator[Record | BadLine]:
    """Every record of `files`, one file after the other. See `read_lines`."""
    return map(parse, read_lines(files, stdin))


def follow(
    files: Sequence[str], *, clock: Clock, sleep: Callable[[float], None], last: int | None = None
) -> Iterator[Record | BadLine]:
    """The records of `files` as they come, without an end. See `follow_lines`."""
    for lines in follow_lines(files, clock=clock, sleep=sleep, last=last):
        yield from map(parse, lines)


def parse(line: Line) -> Record | BadLine:
    """What a line is."""
    if line.fault is not None:
        return BadLine(line.file, line.number, line.fault)
    try:
        record = from_json(line.data)
    except ValueError:
        record = None
    if record is not None and record.schema == SCHEMA_VERSION:
        return record
    schema = record.schema if record is not None else _stated_schema(line.data)
    if schema is None or schema == SCHEMA_VERSION:
        torn = line.data.startswith(b"{") and not line.data.endswith(b"}")
        return BadLine(line.file, line.number, "the line breaks off" if torn else "not a record")
    reason = f"a record of schema {schema}; this version reads schema {SCHEMA_VERSION}"
    return BadLine(line.file, line.number, reason)


class _Stated(msgspec.Struct):
    schema: int


def _stated_schema(data: bytes) -> int | None:
    try:
        return msgspec.json.decode(data, type=_Stated).schema
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_lines(files: Sequence[str], stdin: BinaryIO) -> Iterator[Line]:
    """Every line of `files`, in order; "-" is `stdin`; gzip is recognised by its first bytes.

    Blank lines are passed over. Raises `OSError` when a file cannot be opened.
    """
    for file in files:
        if file == "-":
            yield from _numbered(file, stdin)
            continue
        with open(file, "rb") as plain:
            if plain.peek(2)[:2] == _GZIP:
                with gzip.open(plain) as unzipped:
                    yield from _numbered(file, unzipped)
            else:
                yield from _numbered(file, plain)


def _numbered(file: str, source: Iterable[bytes]) -> Iterator[Line]:
    number = 0
    try:
        for data in source:
            number += 1
            if data := data.strip():
                yield Line(file, number, data)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        yield Line(file, number + 1, b"", "the compressed file breaks off")


def follow_lines(
    files: Sequence[str], *, clock: Clock, sleep: Callable[[float], None], last: int | None = None
) -> Iterator[list[Line]]:
    """The lines of `files` as they come, without an end: what each look found, never nothing.

    `last` is how many lines of each file that is there already come first, None for all. A file
    that does not exist yet is waited for and then read from its beginning. Raises `OSError` at the
    start when a file is there and cannot be opened. What is written between a look and a truncation
    is missed.
    """
    followed = [_Followed(file, last) for file in files]
    try:
        while True:
            if lines := [line for one in followed for line in one.poll(clock())]:
                yield lines
            else:
                sleep(POLL_S)
    finally:
        for one in followed:
            one.close()


class _Followed:
    """A path, the file that is there, and files that were there and may still grow."""

    def __init__(self, path: str, last: int | None) -> None:
        self._path = path
        self._current: _Open | None = None
        self._renamed: list[tuple[_Open, int]] = []
        if os.path.exists(path):
            self._current = _Open(path, last)

    def poll(self, now: int) -> Iterator[Line]:
        """What is new, older files first."""
        # Is there another file at the path? The old one is read on for a while.
        if self._current is None or self._current.replaced():
            try:
                newer = _Open(self._path, None)
            except OSError:
                newer = None
            if newer is not None:
                if self._current is not None:
                    self._renamed.append((self._current, now + GRACE_NS))
                self._current = newer
        for old, until in self._renamed:
            yield from old.poll()
            if now >= until:
                yield from old.rest()
                old.close()
        self._renamed = [(old, until) for old, until in self._renamed if now < until]
        if self._current is not None:
            yield from self._current.poll()

    def close(self) -> None:
        for old, _ in self._renamed:
            old.close()
        if self._current is not None:
            self._current.close()


class _Open:
    """One open file: how far it was read, and the beginning of a line that is not complete."""

    def __init__(self, path: str, last: int | None) -> None:
        self._path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  # closed by its owner
        self._partial = bytearray()
        self._number = 0
        if last is not None:
            start = _start_of_last(self._file, last)
            self._number = _newlines(self._file, start)
            self._file.seek(start)

    def replaced(self) -> bool:
        """Whether the path now leads to another file."""
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def poll(self) -> Iterator[Line]:
        """The complete lines that are new."""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            yield from self.rest()
            self._file.seek(0)
            self._number = 0
        while block := self._file.read(_BLOCK):
            self._partial += block
            if b"\n" not in block:
                continue
            *lines, rest = self._partial.split(b"\n")
            self._partial = rest
            for line in lines:
                self._number += 1
                if data := line.strip():
                    yield Line(self._path, self._number, bytes(data))

    def rest(self) -> Iterator[Line]:
        """A last line that will never be completed."""
        if data := bytes(self._partial.strip()):
            yield Line(self._path, self._number + 1, data)
        self._partial.clear()

    def close(self) -> None:
        self._file.close()


def _start_of_last(file: BinaryIO, count: int) -> int:
    """The offset at which the last `count` complete lines of `file` begin."""
    end = file.seek(0, os.SEEK_END)
    wanted = count + 1  # the newline before the first of them
    while end > 0:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        block = file.read(end - begin)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            wanted -= 1
            if wanted == 0:
                return begin + at + 1
        end = begin
    return 0


def _newlines(file: BinaryIO, until: int) -> int:
    """How many lines end before the offset `until`."""
    file.seek(0)
    count = 0
    while until > 0 and (block := file.read(min(_BLOCK, until))):
        count += block.count(b"\n")
        until -= len(block)
    return count
