"""`ttft tail`: one aligned line per finished request, as the log grows."""

import itertools
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import BinaryIO, TextIO

from proxy.account import Clock
from proxy.analyze.reader import Line, follow_lines, parse, read_lines
from proxy.analyze.render import PLAIN, Style
from proxy.analyze.rows import Rows
from proxy.record import Record

_BLOCK = 1000
_REPORTED = 3
"""How many bad lines are named one by one before they are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked for. `last` is how many records come first, None for all."""

    last: int | None = 10
    follow: bool = True
    json: bool = False
    """Lines as they are in the log, those that are not records left out."""
    style: Style = PLAIN
    tz: tzinfo | None = None
    """The time zone of what is printed; None is the local one."""


def tail(
    files: Sequence[str],
    options: Options,
    *,
    out: TextIO,
    err: TextIO,
    stdin: BinaryIO,
    clock: Clock,
    sleep: Callable[[float], None],
) -> int:
    """Print the records of `files` until there is no end to come. Returns the exit code.

    What cannot be followed ("-" and pipes) is read from its beginning to its end. Lines that are
    not records are counted and reported on `err`. Raises `OSError` when a file cannot be read.
    """
    rows = Rows(options.style, options.tz)
    bad = 0
    try:
        for lines in _batches(files, options, stdin, clock, sleep):
            parsed = [(line, parse(line)) for line in lines]
            for _, entry in parsed:
                if isinstance(entry, Record):
                    rows.fit(entry)
            for line, entry in parsed:
                if isinstance(entry, Record):
                    text = line.data.decode("utf-8", "replace") if options.json else rows.row(entry)
                    out.write(f"{text}\n")
                elif (bad := bad + 1) <= _REPORTED:
                    err.write(f"ttft tail: {entry.file}:{entry.line}: {entry.reason}\n")
            out.flush()
    finally:
        if bad:
            err.write(f"ttft tail: {bad} line{'' if bad == 1 else 's'} skipped\n")
    return 0


def _batches(
    files: Sequence[str],
    options: Options,
    stdin: BinaryIO,
    clock: Clock,
    sleep: Callable[[float], None],
) -> Iterator[Iterable[Line]]:
    """What is there, in one batch that shares its columns, and then what comes."""
    last = options.last
    if options.follow and not all(_can_grow(file) for file in files):
        for line in read_lines(files, stdin):
            yield [line]
        return
    if not options.follow:
        lines = read_lines(files, stdin)
        if last is not None and len(files) == 1:
            yield deque(lines, maxlen=last)
        elif last is not None:
            yield _newest(lines, last)
        else:
            while block := list(itertools.islice(lines, _BLOCK)):
                yield block
        return
    first = True
    for batch in follow_lines(files, clock=clock, sleep=sleep, last=last):
        yield _newest(batch, last) if first and last is not None else batch
        first = False


def _newest(lines: Iterable[Line], count: int) -> list[Line]:
    """The newest `count` of lines from several files, in the order of their time."""
    timed = []
    for line in lines:
        entry = parse(line)
        timed.append((entry.ts if isinstance(entry, Record) else "", line))
    timed.sort(key=lambda pair: pair[0])
    return [line for _, line in timed[max(0, len(timed) - count) :]]


def _can_grow(file: str) -> bool:
    try:
        return file != "-" and stat.S_ISREG(os.stat(file).st_mode)
    except FileNotFoundError:
        return True
