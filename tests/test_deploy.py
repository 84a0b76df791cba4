"""deploy/: what can be checked of it without a Docker daemon or a running systemd."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.cli import parser
from proxy.serve.config import SETTINGS, Config

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "ttft.service"


def settings_of(arguments: list[str], env: dict[str, str]) -> Config:
    """The configuration that a command line and an environment give."""
    parsed = parser().parse_args(arguments)
    return Config.load({name: getattr(parsed, name) for name in SETTINGS}, env)


def dockerfile() -> dict[str, list[str]]:
    """The instructions of the last stage, continuation lines joined."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    last = text[text.rindex("\nFROM ") :]
    found: dict[str, list[str]] = {}
    for line in last.splitlines():
        if match := re.match(r"([A-Z]+) +(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def test_the_image_runs_the_proxy_as_nobody_special() -> None:
    """Entry point and command are a command line that `ttft` takes; the user is not root."""
    image = dockerfile()
    entry: list[str] = yaml.safe_load(image["ENTRYPOINT"][0])
    command: list[str] = yaml.safe_load(image["CMD"][0])
    assert entry == ["ttft"]
    env = dict(pair.split("=", 1) for pair in image["ENV"][0].split() if pair.startswith("TTFT_"))
    config = settings_of(command, {**env, "TTFT_UPSTREAM": "http://upstream"})
    assert (config.host, config.port, config.log) == ("0.0.0.0", 8787, "-")
    assert image["EXPOSE"] == ["8787"]
    assert int(image["USER"][0]) > 0


def test_the_image_is_built_from_the_lock() -> None:
    """With hashes, and from files that the build context holds."""
    text = (DEPLOY / "Dockerfile").read_text()
    assert "--require-hashes -r requirements/serve.txt" in text
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    for line in re.findall(r"^COPY (?!--from)(.*)", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert f"!{source}" in ignored
            assert (ROOT / source).exists()


def test_the_health_check_is_python(tmp_path: Path) -> None:
    """It needs nothing but the interpreter; its code compiles and fails without a listener."""
    check = dockerfile()["HEALTHCHECK"][0]
    command: list[str] = yaml.safe_load(check[check.index("[") :])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "HEALTHCHECK", "exec")


def test_the_compose_override_fits_a_stock_dify() -> None:
    """One more service on Dify's default network, reachable as http://ttft:8787."""
    compose: dict[str, Any] = yaml.safe_load(
        (DEPLOY / "dify" / "docker-compose.override.yaml").read_text()
    )
    (name,) = compose["services"]
    service = compose["services"][name]
    assert name == "ttft"
    assert service["networks"] == ["default"]
    assert service["extra_hosts"] == ["host.docker.internal:host-gateway"]
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    env = {key: value for key, value in service["environment"].items() if key.startswith("TTFT_")}
    config = settings_of(service["command"], {**env, "TTFT_UPSTREAM": "https://api.example"})
    assert (config.host, config.port, config.tags) == ("0.0.0.0", 8787, True)
    (volume,) = service["volumes"]
    source, target = volume.split(":")
    assert source in compose["volumes"]
    assert Path(config.log).parent == Path(target)
    user = dockerfile()["USER"][0]
    assert service["tmpfs"] == [f"/run/ttft:uid={user},gid={user},mode=0700"]
    assert int(service["stop_grace_period"].rstrip("s")) > config.shutdown_grace_s


def unit() -> dict[str, str]:
    """The directives of the systemd unit."""
    text = UNIT.read_text()
    return dict(re.findall(r"^([A-Za-z]+)=(.*)$", text, re.MULTILINE))


def test_the_unit_starts_a_command_that_exists() -> None:
    """`ExecStart` is a command line that `ttft` takes; reloading sends SIGHUP."""
    directives = unit()
    program, *arguments = directives["ExecStart"].replace("%S", "/var/lib").split()
    assert Path(program).name == "ttft"
    config = settings_of(arguments, {"TTFT_UPSTREAM": "https://api.example"})
    assert config.log == f"/var/lib/{directives['StateDirectory']}/ttft.jsonl"
    assert directives["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert directives["DynamicUser"] == "yes"
    assert int(directives["TimeoutStopSec"]) > config.shutdown_grace_s
    assert directives["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say, and rates it as hardened."""
    program = tmp_path / "ttft"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / "ttft.service"
    copy.write_text(UNIT.read_text().replace("/opt/ttft/bin/ttft", str(program)))
    verify = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verify.returncode, verify.stdout + verify.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout
