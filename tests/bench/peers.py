"""The rows: how each proxy is started in front of the simulated model API."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from proxy import __version__

from .install import PINS, ROOT, cache, debian_peer, python_peer

Say = Callable[[str], None]
Command = Callable[[int, int, Path], list[str]]
"""From the port to listen on, the port of upstream and a folder of its own."""

NONE = "none"
OURS = "ours"
OURS_HTTPX = "ours-httpx"
SLOW = (OURS_HTTPX, "mitmproxy", "litellm")
"""Rows that take part in fewer rounds."""
NAMES = (NONE, "haproxy", "nginx", OURS, *SLOW)

NGINX = """\
daemon off;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream model {{
        server 127.0.0.1:{upstream};
        keepalive 2048;
        keepalive_requests 1000000000;
        keepalive_timeout 1h;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        client_max_body_size 0;
        location / {{
            proxy_pass http://model;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 1h;
        }}
    }}
}}
"""

HAPROXY = """\
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout http-keep-alive 1h
frontend clients
    bind 127.0.0.1:{port} backlog 4096
    default_backend model
backend model
    server model 127.0.0.1:{upstream}
"""

MITMPROXY = """\
def requestheaders(flow):
    flow.request.stream = True


def responseheaders(flow):
    flow.response.stream = True
"""

LITELLM = """\
model_list:
  - model_name: bench
    litellm_params:
      model: openai/bench
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: sk-bench
general_settings:
  dangerously_permit_weak_or_unset_master_key: true
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """One row."""

    name: str
    version: str
    command: Command | None
    """None for the row without a proxy."""
    writes_records: bool = False


def prepare(name: str, env: Mapping[str, str], say: Say) -> Peer:
    """The row, installed. Raises `UnavailableError`."""
    folder = cache(env)
    if name == NONE:
        return Peer(name, "", None)
    if name == OURS:
        return Peer(name, __version__, _ours, writes_records=True)
    if name == OURS_HTTPX:
        return Peer(name, __version__, _ours_httpx, writes_records=True)
    if name == "nginx":
        nginx = debian_peer("nginx", say)
        return Peer(name, _version([nginx, "-v"]), lambda *at: _nginx(nginx, *at))
    if name == "haproxy":
        haproxy = debian_peer("haproxy", say)
        return Peer(name, _version([haproxy, "-v"]), lambda *at: _haproxy(haproxy, *at))
    program = python_peer(name, folder, say)
    version = PINS[name][0].partition("==")[2]
    if name == "mitmproxy":
        return Peer(name, version, lambda *at: _mitmproxy(program, *at))
    return Peer(name, version, lambda *at: _litellm(program, *at))


def environment(folder: Path) -> dict[str, str]:
    """A bare environment, without the user's keys, proxies and settings."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }


def records(folder: Path) -> Path:
    """Where our rows write their records."""
    return folder / "records.jsonl"


def _ours(port: int, upstream: int, folder: Path) -> list[str]:
    serve = [sys.executable, "-m", "proxy", "serve", "--port", str(port)]
    return [*serve, "--upstream", f"http://127.0.0.1:{upstream}", "--log", str(records(folder))]


def _ours_httpx(port: int, upstream: int, folder: Path) -> list[str]:
    launch = [sys.executable, "-m", "tests.bench.launch_httpx"]
    return [*launch, f"http://127.0.0.1:{upstream}", str(port), str(records(folder))]


def _nginx(program: str, port: int, upstream: int, folder: Path) -> list[str]:
    user = "user root;" if os.geteuid() == 0 else ""
    text = NGINX.format(port=port, upstream=upstream, folder=folder, user=user)
    path = folder / "nginx.conf"
    path.write_text(text)
    return [program, "-e", str(folder / "error.log"), "-c", str(path)]


def _haproxy(program: str, port: int, upstream: int, folder: Path) -> list[str]:
    path = folder / "haproxy.cfg"
    path.write_text(HAPROXY.format(port=port, upstream=upstream))
    return [program, "-db", "-q", "-f", str(path)]


def _mitmproxy(program: Path, port: int, upstream: int, folder: Path) -> list[str]:
    path = folder / "stream.py"
    path.write_text(MITMPROXY)
    start = [str(program / "mitmdump"), "--quiet", "--set", f"confdir={folder}", "-s", str(path)]
    listen = ["--listen-host", "127.0.0.1", "--listen-port", str(port)]
    return [*start, *listen, "--mode", f"reverse:http://127.0.0.1:{upstream}"]


def _litellm(program: Path, port: int, upstream: int, folder: Path) -> list[str]:
    path = folder / "litellm.yaml"
    path.write_text(LITELLM.format(upstream=upstream))
    start = [str(program / "litellm"), "--config", str(path), "--num_workers", "1"]
    return [*start, "--host", "127.0.0.1", "--port", str(port)]


def _version(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+[\w.+~-]*", done.stdout + done.stderr)
    return found[0] if found else "unknown"
