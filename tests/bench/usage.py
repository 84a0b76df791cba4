"""What the operating system says about a process and its children: CPU, memory. Linux."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_RESET_PEAK = "5"


@dataclass(frozen=True, slots=True)
class Tree:
    """A process and all that descend from it."""

    root: int

    def cpu_ns(self) -> int:
        """CPU time of all their threads so far (proc_pid_schedstat: the first number, ns)."""
        total = 0
        for pid in self.pids():
            for thread in _list(PROC / str(pid) / "task"):
                total += int(_read(thread / "schedstat").partition(" ")[0] or 0)
        return total

    def memory_kb(self) -> int:
        """Resident memory now."""
        return sum(_status(pid, "VmRSS") for pid in self.pids())

    def peak_kb(self) -> int:
        """The sum of their peaks of resident memory since `reset_peak`."""
        return sum(_status(pid, "VmHWM") for pid in self.pids())

    def reset_peak(self) -> None:
        """Start the peaks anew (proc(5), clear_refs)."""
        for pid in self.pids():
            with suppress(OSError):
                (PROC / str(pid) / "clear_refs").write_text(_RESET_PEAK)

    def pids(self) -> list[int]:
        """The ids of the processes that live now, the root first."""
        children: dict[int, list[int]] = {}
        for pid, parent in _parents():
            children.setdefault(parent, []).append(pid)
        found = [self.root]
        for pid in found:
            found.extend(children.get(pid, ()))
        return found


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir(PROC):
        # The name, in parentheses, may hold anything; the parent is the second field after it.
        if entry.isdigit() and (stat := _read(PROC / entry / "stat")):
            yield int(entry), int(stat.rpartition(")")[2].split()[1])


def _status(pid: int, name: str) -> int:
    for line in _read(PROC / str(pid) / "status").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
