"""What the repository promises around the package: targets, locks, schema, papers."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy import __version__
from proxy.record import SCHEMA_VERSION, json_schema, to_json
from tests.records import record

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("serve.txt", "dev.txt")
TARGETS = (
    *("demo", "serve", "test", "lint", "format"),
    *("real", "bench", "lab", "schema", "lock", "clean"),
)


def make(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run make in the repository, apart from a make that runs these tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "-C", str(ROOT), "--no-print-directory", *arguments],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )


def normalized(name: str) -> str:
    """A distribution's name as locks write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: str) -> dict[str, str]:
    """Names and versions of a lock file."""
    text = (ROOT / "requirements" / lock).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", text, re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_everything_by_hash(lock: str) -> None:
    """Every requirement has a version and hashes; nothing says where to download from."""
    text = (ROOT / "requirements" / lock).read_text()
    entries = text.replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in text


def test_locks_hold_what_the_project_names() -> None:
    """A dependency that was added to pyproject.toml is in the lock."""
    groups = PROJECT["dependency-groups"]
    serving = [*PROJECT["project"]["dependencies"], *groups["build"]]
    everything = [*serving, *groups["test"], *groups["lint"]]
    for lock, wanted in (("serve.txt", serving), ("dev.txt", everything)):
        names = {normalized(re.split(r"[<>=;\[ ]", one)[0]) for one in wanted}
        assert names <= locked(lock).keys()


def test_locks_agree() -> None:
    """Tests run with the versions that are served with."""
    assert locked("serve.txt").items() <= locked("dev.txt").items()


def test_the_serving_side_is_small() -> None:
    """Analysis engines, test tools and model clients stay out of it."""
    assert len(locked("serve.txt")) <= 30
    assert not locked("serve.txt").keys() & {"duckdb", "pandas", "numpy", "pytest", "openai"}


def test_schema_file_is_current() -> None:
    """`make schema` was run after the last change of the record."""
    assert json.loads((ROOT / "deploy" / "record.schema.json").read_text()) == json_schema()


def test_a_record_validates_against_the_schema() -> None:
    """And one with a wrong field does not."""
    schema = json.loads((ROOT / "deploy" / "record.schema.json").read_text())
    line = json.loads(to_json(record()))
    jsonschema.validate(line, schema, cls=jsonschema.Draft202012Validator)
    assert line["schema"] == SCHEMA_VERSION
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(line | {"outcome": "fine"}, schema)


def test_make_help_is_the_default() -> None:
    """`make` alone lists the targets."""
    done = make()
    assert done.returncode == 0
    assert done.stdout == make("help").stdout
    for target in TARGETS:
        assert re.search(rf"^  {target} +\w", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_one(target: str) -> None:
    """make knows how to make it."""
    done = make("-n", target, "UPSTREAM=http://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (0, "")


def test_make_serve_wants_an_upstream() -> None:
    """And says so, instead of starting something."""
    done = make("serve", "UPSTREAM=", "SERVE=")
    assert done.returncode == 2
    assert "make serve UPSTREAM=https://" in done.stderr


def test_make_names_a_missing_python(tmp_path: Path) -> None:
    """Without a suitable Python the message says what to install."""
    venv = tmp_path / "venv"
    done = make("PYTHON=/no/such/python", f"VENV={venv}", f"{venv}/bin/python")
    assert done.returncode == 2
    assert "No Python >= 3.11" in done.stderr


def test_ci_script() -> None:
    """It is executable, its syntax is right, and it runs what contributors run."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    assert "set -euo pipefail" in text
    assert "make lint" in text
    assert text.rstrip().endswith("make test")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_ci_script_passes_shellcheck() -> None:
    """Where there is a shellcheck."""
    subprocess.run(["shellcheck", str(ROOT / ".ci" / "run")], check=True)


def test_papers() -> None:
    """License, changelog and version tell the same story as the package."""
    assert (ROOT / "LICENSE").read_text().split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert PROJECT["project"]["license"] == "Apache-2.0"
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in changelog
    assert "### Record schema" in changelog
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    for name in PROJECT["project"]["license-files"]:
        assert (ROOT / name).is_file()


def test_contributing_names_what_exists() -> None:
    """Every path and make target in CONTRIBUTING.md is real."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"`((?:proxy|tests|deploy)/[\w./]+)`", text):
        if "NAME" not in path:
            assert (ROOT / path).exists(), path
    for target in re.findall(r"make ([a-z]+)", text):
        assert target in TARGETS, target
