"""proxy/serve/runtime.py: who runs here."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

from proxy.serve.runtime import Running, folder, register, running

SECOND = 1_000_000_000
HOLDER = """
import sys
from pathlib import Path
from proxy.serve.runtime import register
with register(url="u", upstream="x", log="-", started_ns=10**9, where=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_file_exists_while_the_process_serves(tmp_path: Path) -> None:
    """Written at the start, readable by its owner only, removed at the end."""
    where = tmp_path / "run" / "ttft"
    with register(
        url="http://127.0.0.1:8787",
        upstream="https://api.example/v1",
        log="/var/log/ttft.jsonl",
        started_ns=1_700_000_000 * SECOND + 1_500,
        where=where,
    ):
        assert running(where) == [
            Running(
                pid=os.getpid(),
                url="http://127.0.0.1:8787",
                upstream="https://api.example/v1",
                log="/var/log/ttft.jsonl",
                started="2023-11-14T22:13:20.000001Z",
            )
        ]
        (file,) = where.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(where.stat().st_mode) == 0o700
    assert running(where) == []
    assert list(where.iterdir()) == []


def test_the_file_of_a_killed_process_is_stale(tmp_path: Path) -> None:
    """It is found while the process lives; after SIGKILL it is passed over and removed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert [one.pid for one in running(tmp_path)] == [process.pid]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert list(tmp_path.glob("*.json")) != []
    assert running(tmp_path) == []
    assert list(tmp_path.glob("*.json")) == []


def test_a_process_that_only_has_the_same_number_is_not_it(tmp_path: Path) -> None:
    """A file that nobody holds is stale even when a process with its pid lives."""
    left_over = tmp_path / f"{os.getpid()}.json"
    left_over.write_text('{"pid":1,"url":"","upstream":"","log":"","started":""}')
    assert running(tmp_path) == []
    assert not left_over.exists()


def test_newest_first(tmp_path: Path) -> None:
    """Two proxies: the one that was started last comes first."""
    older = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with older:
        assert older.stdout is not None
        older.stdout.readline()
        with register(url="new", upstream="x", log="-", started_ns=2 * SECOND, where=tmp_path):
            assert [one.url for one in running(tmp_path)] == ["new", "u"]
        older.communicate()


def test_a_folder_that_cannot_be_used_stops_nobody(tmp_path: Path) -> None:
    """Serving goes on without the file."""
    (tmp_path / "file").touch()
    with register(url="u", upstream="x", log="-", started_ns=0, where=tmp_path / "file" / "sub"):
        assert running(tmp_path / "file" / "sub") == []


def test_where_the_folder_is() -> None:
    """The user's runtime folder; else below the home; a relative variable is ignored."""
    assert folder({"XDG_RUNTIME_DIR": "/run/user/1", "HOME": "/h"}) == Path("/run/user/1/ttft")
    assert folder({"XDG_RUNTIME_DIR": "run", "HOME": "/h"}) == Path("/h/.cache/ttft/run")
