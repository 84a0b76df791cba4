"""The record log: the only writer of records. One thread, whole lines, and never in the way.

`emit` puts a record into a bounded queue; one thread turns records into lines and writes them to an
O_APPEND file. Rules:

1. A full or slow disk, a closed pipe, a read-only or missing folder never touch traffic: records
   are dropped and counted, the trouble is announced once, and so is its end.
2. Only whole lines are written. What a short write tore is completed by a newline in front of the
   next line, and the torn record counts as dropped.
3. Rotation by rename is noticed within a second of the next record, by SIGHUP at once
   (`reopen`); truncation in place needs nothing, thanks to O_APPEND.

Records do not pass through structlog. Encoding and writing one of 2.4 kB takes 5.6 us, and 11.0 us
through structlog's bytes logger and one msgspec processor, which also cannot see a short write.
"""

import errno
import os
import select
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from proxy.account import Clock
from proxy.record import Record, to_json

QUEUE_LIMIT = 10_000
_LINES_PER_WRITE = 256
_LOOK_NS = 1_000_000_000
"""How often, at most, the path is looked at and a failed log is tried again."""
_STDOUT = 1
_REOPEN = object()
_CLOSE = object()


class RecordLog:
    """Writes records to `target`: a path, "-" for stdout, or a file descriptor that stays open.

    `announce` gets short sentences for a person, from the writer's thread. `write` has the contract
    of `os.write`. Missing folders are created, readable by their owner only, once, at the start.
    """

    def __init__(
        self,
        target: str | int,
        *,
        announce: Callable[[str], None],
        clock: Clock,
        limit: int = QUEUE_LIMIT,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self._queue: SimpleQueue[object] = SimpleQueue()
        self._limit = limit
        self._closed = False
        self._overflowed = 0  # counted by the caller's thread; `_Writer.lost` by the other
        self._writer = _Writer(target, announce, clock, write)
        self._thread = threading.Thread(target=self._run, name="ttft-log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Records lost so far."""
        return self._overflowed + self._writer.lost

    def emit(self, record: Record) -> None:
        """Take a record. Returns at once and never raises; one thread calls it."""
        if self._queue.qsize() >= self._limit or self._closed:
            self._overflowed += 1
        else:
            self._queue.put(record)

    def reopen(self) -> None:
        """Close the file and open its path anew, after what is queued has been written."""
        self._queue.put(_REOPEN)

    def flush(self, timeout: float) -> bool:
        """Wait until what is queued was written or lost. False after `timeout` seconds."""
        done = threading.Event()
        self._queue.put(done)
        return done.wait(timeout)

    def close(self, timeout: float) -> bool:
        """Write what is queued and stop. False when that took longer than `timeout` seconds."""
        self._closed = True
        self._queue.put(_CLOSE)
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._writer.say("the log is too slow: its last records are lost")
            return False
        return True

    def _run(self) -> None:
        announced = 0
        self._writer.open()
        while True:
            # 1. Wait for a record, and take what has come meanwhile.
            records, order = self._take()

            # 2. Write; say afterwards when the queue had been too short for a slow disk.
            self._writer.write(records, last_try=order is _CLOSE)
            if (overflowed := self._overflowed) > announced:
                self._writer.say(f"the log was too slow; records dropped: {overflowed - announced}")
                announced = overflowed

            # 3. Orders come after the records that were queued before them.
            if order is _REOPEN:
                self._writer.reopen()
            elif isinstance(order, threading.Event):
                order.set()
            elif order is _CLOSE:
                self._writer.close()
                return

    def _take(self) -> tuple[list[Record], object]:
        records: list[Record] = []
        item = self._queue.get()
        with suppress(Empty):
            while isinstance(item, Record):
                records.append(item)
                if len(records) == _LINES_PER_WRITE:
                    return records, None
                item = self._queue.get_nowait()
            return records, item
        return records, None


class _Writer:
    """The file and what went wrong with it. Lives in the log's thread, but for `lost`."""

    def __init__(
        self,
        target: str | int,
        announce: Callable[[str], None],
        clock: Clock,
        write: Callable[[int, bytes], int],
    ) -> None:
        self._path = None if isinstance(target, int) or target == "-" else target
        self._name = self._path or "standard output"
        self._fd = target if isinstance(target, int) else _STDOUT if target == "-" else None
        self._announce = announce
        self._clock = clock
        self._write_fd = write
        self._looked_at = 0
        self._torn = False
        self._trouble = False
        self._unreadable = False
        self._lost_and_told = 0
        self.lost = 0

    def open(self) -> None:
        """Open the path for the first time; trouble is announced and tried again later."""
        if self._path is not None:
            with suppress(OSError):
                os.makedirs(os.path.dirname(self._path) or ".", mode=0o700, exist_ok=True)
            try:
                self._open()
            except OSError as error:
                self._in_trouble(error)

    def reopen(self) -> None:
        """Open the path again at the next record, whatever the state."""
        if self._path is not None:
            self._release()
            self._looked_at = self._clock() - _LOOK_NS

    def close(self) -> None:
        """Let go of the file."""
        if lost := self.lost - self._lost_and_told:
            self.say(f"records not written to {self._name}: {lost}")
        self._release()

    def say(self, sentence: str) -> None:
        """Tell a person; a broken stderr is no reason to stop."""
        with suppress(Exception):
            self._announce(sentence)

    def write(self, records: list[Record], *, last_try: bool = False) -> None:
        """Write `records` as whole lines, or count them as lost."""
        lines = [line for record in records if (line := self._line(record)) is not None]
        if not lines:
            return
        try:
            self._look(last_try)
            while lines:
                lines = self._write_some(lines)
        except _NotYet:
            self.lost += len(lines)
        except OSError as error:
            self._in_trouble(error)
            self.lost += len(lines)
        else:
            self._out_of_trouble()

    def _line(self, record: Record) -> bytes | None:
        try:
            return to_json(record) + b"\n"
        except Exception as error:  # a record that cannot be written must not stop the others
            self.lost += 1
            if not self._unreadable:
                self._unreadable = True
                self.say(f"a record could not be encoded ({type(error).__name__}); dropped")
            return None

    def _write_some(self, lines: list[bytes]) -> list[bytes]:
        """One write. Returns the lines that are still to be written."""
        assert self._fd is not None
        # Where somebody made the shared stdout non-blocking, only small writes stay whole.
        batch = lines if os.get_blocking(self._fd) else lines[:1]
        data = b"".join([b"\n", *batch] if self._torn else batch)
        try:
            count = self._write_fd(self._fd, data)
        except BlockingIOError:
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            poll.poll()
            return lines
        if count >= len(data):
            self._torn = False
            return lines[len(batch) :]
        if count == 0:
            raise OSError(errno.EIO, "nothing was written")
        whole = data.count(b"\n", 0, count) - self._torn
        self._torn = data[count - 1] != ord("\n")
        if self._torn:
            self.lost += 1
        return lines[whole + self._torn :]

    def _look(self, last_try: bool) -> None:
        """Make sure that there is a file and that it is the one at the path."""
        now = self._clock()
        due = now - self._looked_at >= _LOOK_NS
        if self._trouble and not (due or last_try):
            raise _NotYet
        if due:
            self._looked_at = now
        if self._path is None:
            return
        if self._fd is not None and due and not self._current():
            self._release()
        if self._fd is None:
            self._open()

    def _current(self) -> bool:
        assert self._path is not None
        assert self._fd is not None
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._fd))

    def _open(self) -> None:
        assert self._path is not None
        self._looked_at = self._clock()
        # Non-blocking only while opening: a FIFO without a reader is an error, not a long wait.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._fd = os.open(self._path, flags, 0o600)
        os.set_blocking(self._fd, True)
        self._torn = self._ends_torn()

    def _ends_torn(self) -> bool:
        """Whether the file ends inside a line, as after a crash or a full disk."""
        assert self._path is not None
        assert self._fd is not None
        about = os.fstat(self._fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size == 0:
            return False
        try:
            with open(self._path, "rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:
            return False

    def _release(self) -> None:
        if self._path is not None and self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None

    def _in_trouble(self, error: OSError) -> None:
        self._release()
        self._looked_at = self._clock()
        if not self._trouble:
            self._trouble = True
            why = os.strerror(error.errno) if error.errno else type(error).__name__
            self.say(f"cannot write records to {self._name}: {why}; they are dropped meanwhile")

    def _out_of_trouble(self) -> None:
        if self._trouble:
            self._trouble = False
            lost, self._lost_and_told = self.lost - self._lost_and_told, self.lost
            self.say(f"records are written to {self._name} again; dropped meanwhile: {lost}")


class _NotYet(Exception):  # noqa: N818  # a state, not an error
    """The log is in trouble, and it is too early to try again."""
