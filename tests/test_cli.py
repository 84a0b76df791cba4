"""proxy/cli.py: the command line, run as users run it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli import main, parser
from proxy.record import to_json
from proxy.serve.config import SETTINGS, Config
from tests.records import record

VERBS = ("serve", "tail", "simulate", "demo")


def ttft(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run `ttft` to its end, with nothing of the user's environment but what is given."""
    return subprocess.run(
        [sys.executable, "-m", "proxy", *arguments],
        capture_output=True,
        text=True,
        env={"HOME": "/nonexistent", "PATH": os.environ["PATH"], **env},
        check=False,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with two records."""
    path = tmp_path / "ttft.jsonl"
    path.write_bytes(to_json(record()) + b"\n" + to_json(record(model="mödel")) + b"\n")
    return path


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`ttft --version`."""
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"ttft {__version__}\n"


@pytest.mark.parametrize("arguments", [(), *((verb,) for verb in VERBS)])
def test_help_is_readable_in_80_columns(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stdout, exit code 0."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_examples_in_the_help_can_be_run(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command in a help text is one that the command line takes."""
    with pytest.raises(SystemExit):
        main([verb, "--help"] if verb else ["--help"])
    text = capsys.readouterr().out
    commands = re.findall(r"^  ttft ((?:[^ \n]+ ?)+)", text, re.MULTILINE)
    assert commands or verb == "demo"
    for command in commands:
        words = command.split("|")[0].split()
        parsed = parser().parse_args(words)
        assert parsed.verb.__name__ == f"_{words[0]}"


def test_every_setting_has_its_flag(tmp_path: Path) -> None:
    """What `Config` takes, the command line offers by the same name, and the other way round."""
    offered = vars(parser().parse_args(["serve"]))
    assert offered.keys() - {"verb"} == SETTINGS.keys()
    assert all(value is None for name, value in offered.items() if name != "verb")
    given = parser().parse_args(
        ["serve", "--upstream", "http://h", "--tags", "--port", "1", "--no-http2"]
    )
    flags = {name: getattr(given, name) for name in SETTINGS}
    config = Config.load(flags, {"TTFT_HTTP2": "1", "TTFT_LOG": str(tmp_path / "log")})
    assert (config.port, config.tags, config.http2) == (1, True, False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "VERB"),
        (("nonsense",), "invalid choice"),
        (("serve",), "no upstream is given"),
        (("serve", "--nonsense"), "unrecognized"),
        (("serve", "--up", "http://h"), "unrecognized"),
        (("serve", "--upstream"), "expected one argument"),
        (("serve", "--upstream", "http://h", "--port", "x"), "--port"),
        (("serve", "https://me:hidden@h/"), "unrecognized"),
        (("serve", "--upstream", "https://me:hidden@h?key=hidden"), "--upstream"),
        (("serve", "--upstream", "http://h", "--upstream-proxy", "me:hidden@"), "--upstream-proxy"),
        (("tail", "-n", "-1"), "-n"),
        (("tail", "-n", "x"), "whole number"),
        (("tail",), "no proxy runs here"),
        (("simulate", "--port", "99999"), "whole number"),
        (("simulate", "--slots", "0"), "whole number"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], says: str) -> None:
    """Exit code 2, one message on stderr, no traceback, no secret."""
    done = ttft(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.startswith("ttft")
    assert len(done.stderr.splitlines()) <= 2
    assert "hidden" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_environment_variable_is_named() -> None:
    """The message says where the bad value came from."""
    done = ttft("serve", TTFT_UPSTREAM="https://me:hidden@h:x")
    assert done.returncode == 2
    assert done.stderr.startswith("ttft serve: TTFT_UPSTREAM: ")
    assert "hidden" not in done.stderr


def test_tail_prints_a_log(log: Path) -> None:
    """In a pipe without colour; forced when asked for; JSON as it is."""
    done = ttft("tail", "--no-follow", str(log))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[3] for line in done.stdout.splitlines()] == ["gpt-5.1-codex", "mödel"]
    assert "\x1b" not in done.stdout
    assert "\x1b[" in ttft("tail", "--no-follow", "--color", "always", str(log)).stdout
    assert ttft("tail", "--no-follow", "--json", str(log)).stdout == log.read_text()


def test_tail_in_a_plain_ascii_world(log: Path) -> None:
    """What the encoding cannot show is replaced, not fatal."""
    done = ttft("tail", "--no-follow", str(log), PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "m?del" in done.stdout


def test_tail_finds_the_usual_log(tmp_path: Path) -> None:
    """Without FILE and without a running proxy: the log at its default place."""
    usual = tmp_path / "ttft" / "ttft.jsonl"
    usual.parent.mkdir()
    usual.write_bytes(to_json(record()) + b"\n")
    done = ttft("tail", "--no-follow", XDG_STATE_HOME=str(tmp_path))
    assert "gpt-5.1-codex" in done.stdout


def test_tail_finds_the_log_of_the_running_proxy(log: Path, tmp_path: Path) -> None:
    """The runtime file leads there; a proxy that logs to stdout is passed over."""
    code = (
        "import sys\n"
        "from proxy.serve.runtime import register\n"
        "with register(url='u', upstream='x', log=sys.argv[1], started_ns=10**9):\n"
        "    print(flush=True)\n"
        "    sys.stdin.read()\n"
    )
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        done = ttft("tail", "--no-follow", XDG_RUNTIME_DIR=str(tmp_path))
        holder.communicate()
    assert len(done.stdout.splitlines()) == 2


def test_tail_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Exit code 1 and one sentence."""
    done = ttft("tail", "--no-follow", str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr == f"ttft tail: cannot read {tmp_path / 'none'}: No such file or directory\n"
    assert ttft("tail", "--no-follow", str(tmp_path)).returncode == 1


def test_control_c(log: Path) -> None:
    """Ends `tail` quietly with 130."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy", "tail", str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate()
    assert (process.returncode, complaints) == (130, b"")


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    """`ttft tail | head -1`: quietly, with the code that a shell gives for SIGPIPE."""
    path = tmp_path / "log"
    path.write_bytes((to_json(record()) + b"\n") * 5000)
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy", "tail", "-n", "all", "--no-follow", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    complaints = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), complaints) == (141, b"")


def test_stdout_may_be_closed(log: Path) -> None:
    """`ttft tail >&-`."""
    done = subprocess.run(
        ["sh", "-c", '"$0" -m proxy tail --no-follow "$1" >&-', sys.executable, str(log)],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
