"""What runs here: one small file per serving process, so that other verbs find its address and log.

The file is `<pid>.json` in `$XDG_RUNTIME_DIR/ttft` (or `~/.cache/ttft/run`), mode 0600 in a folder
of mode 0700, and holds no credentials. Its process keeps it locked (flock) while it lives; a file
that nobody holds is stale, whatever process has its number now, and is removed by who sees it.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """One serving process. `upstream` has no credentials; `log` is an absolute path or "-"."""

    pid: int
    url: str
    upstream: str
    log: str
    started: str
    """RFC 3339, UTC."""


def folder(env: Mapping[str, str]) -> Path:
    """Where runtime files are kept for the user of `env`."""
    if os.path.isabs(runtime := env.get("XDG_RUNTIME_DIR", "")):
        return Path(runtime, "ttft")
    home = env.get("HOME") or os.path.expanduser("~")
    return Path(home, ".cache", "ttft", "run")


@contextmanager
def register(
    *, url: str, upstream: str, log: str, started_ns: int, where: Path | None = None
) -> Iterator[None]:
    """Keep this process's file, in the user's folder or in `where`, until the context ends.

    `started_ns` is wall-clock time. Where the folder cannot be used there is no file and the
    process goes on: other verbs then have to be told where the log is.
    """
    pid = os.getpid()
    this = Running(pid=pid, url=url, upstream=upstream, log=log, started=_rfc3339(started_ns))
    path = (where or folder(os.environ)) / f"{pid}.json"
    fd = None
    with suppress(OSError):
        fd = _write_held(path, msgspec.json.encode(this))
    try:
        yield
    finally:
        if fd is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(fd)


def _write_held(path: Path, text: bytes) -> int:
    """A locked file at `path` holding `text`; its descriptor."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # Locked before it has its name: nobody ever sees a file that is complete but not held.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, text)
        draft.replace(path)
    except OSError:
        os.close(fd)
        raise
    return fd


def _rfc3339(wall_ns: int) -> str:
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


def running(where: Path | None = None) -> list[Running]:
    """The serving processes of this user that live, newest first; stale files are removed."""
    found = []
    for path in (where or folder(os.environ)).glob("[0-9]*.json"):
        with suppress(OSError, msgspec.DecodeError):
            if (alive := _read(path)) is not None:
                found.append(alive)
    return sorted(found, key=lambda one: one.started, reverse=True)


def _read(path: Path) -> Running | None:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return msgspec.json.decode(file.read(65536), type=Running)
        path.unlink(missing_ok=True)
        return None
