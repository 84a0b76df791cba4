"""The settings of `ttft serve`: read once, checked once, then frozen.

Every setting has a flag and an environment variable (`--pool-limit`, `TTFT_POOL_LIMIT`); the flag
wins, and an empty variable counts as not set. Credentials in URLs are accepted, kept apart, and
never part of a `repr` or a message.

How a target joins the upstream: its prefix, without trailing slashes, and then the client's target
as it came. So `/v1` and `/v1/x` make `/v1/v1/x`: nothing is guessed. See `join`.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from proxy.serve.address import (
    HOST_NAME,
    ForwardProxy,
    Upstream,
    is_ipv6,
    parse_proxy,
    parse_upstream,
    proxy_from_environment,
)
from proxy.serve.judgement import BANDS_MS, TPOT_MS, TTFT_MS, Thresholds

_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_TAG = re.compile(rb"/t/([A-Za-z0-9._-]{1,64})(?=[/?]|\Z)")


class ConfigError(ValueError):
    """A setting cannot be used. The text says what was found, what was expected, what to do."""


class Joined(NamedTuple):
    """A target as sent to the upstream, and the tag that the client put in front of it."""

    target: bytes
    label: str | None


def join(upstream: Upstream, target: bytes, tags: bool) -> Joined:
    """The target for the upstream: its prefix followed by the client's raw target.

    Of an absolute-form target only path and query count; its host never chooses anything. An empty
    path is "/". "*" stays as it is when there is no prefix. With `tags`, a leading `/t/<tag>` is
    taken off and returned as the label. Every other byte stays (forms: RFC 9112 section 3.2).
    """
    if target == b"*":
        return Joined(upstream.prefix + b"/" if upstream.prefix else target, None)
    absolute = _ABSOLUTE.match(target)
    rooted = _rooted(target[absolute.end() :] if absolute else target)
    label = None
    if tags and (tag := _TAG.match(rooted)):
        label = tag[1].decode("ascii")
        rooted = _rooted(rooted[tag.end() :])
    return Joined(upstream.prefix + rooted, label)


def _rooted(target: bytes) -> bytes:
    return target if target.startswith(b"/") else b"/" + target


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that `ttft serve` can be told. Durations in seconds; None is "no limit"."""

    upstream: Upstream
    host: str = "127.0.0.1"
    port: int = 8787
    log: str = "-"
    """A path, or "-" for stdout."""
    label: str | None = None
    tags: bool = False
    ca_file: str | None = None
    insecure: bool = False
    forward_proxy: ForwardProxy | None = None
    http2: bool = False
    connect_timeout_s: float | None = 10.0
    idle_timeout_s: float | None = None
    total_timeout_s: float | None = None
    pool_limit: int = 1000
    keepalive_s: float = 55.0
    """How long an idle connection to the upstream is kept."""
    client_keepalive_s: float = 75.0
    shutdown_grace_s: float = 10.0
    max_head_bytes: int = 256 * 1024
    bands_ms: tuple[float, ...] = BANDS_MS
    ttft_alert_ms: tuple[float, ...] = TTFT_MS
    tpot_alert_ms: tuple[float, ...] = TPOT_MS

    @property
    def thresholds(self) -> Thresholds:
        """The three of them as one value."""
        return Thresholds(self.bands_ms, self.ttft_alert_ms, self.tpot_alert_ms)

    @classmethod
    def load(cls, flags: Mapping[str, str | bool | None], env: Mapping[str, str]) -> "Config":
        """The settings from `flags` (by their names in `SETTINGS`; None is "not given") and `env`.

        Raises `ConfigError` with one sentence or two for the person who typed it.
        """
        found: dict[str, Any] = {"log": default_log(env)}
        for name, setting in SETTINGS.items():
            given, value = flags.get(name), env.get(setting.variable) or None
            source = setting.flag if given is not None else setting.variable
            chosen = given if given is not None else value
            if chosen is None:
                continue
            try:
                found[setting.field] = chosen if isinstance(chosen, bool) else setting.parse(chosen)
            except ValueError as error:
                raise ConfigError(f"{source}: {error}") from None
        if "upstream" not in found:
            raise ConfigError(
                "no upstream is given. Name the model API to send requests to, for example "
                "--upstream https://api.openai.com (or set TTFT_UPSTREAM)."
            )
        if found.get("forward_proxy") == "env":
            try:
                found["forward_proxy"] = proxy_from_environment(found["upstream"], env)
            except ValueError as error:
                raise ConfigError(str(error)) from None
        return cls(**found)


def default_log(env: Mapping[str, str]) -> str:
    """The log of a user who named none, by the XDG base directory rules."""
    state = env.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        home = env.get("HOME") or os.path.expanduser("~")
        if not os.path.isabs(home):
            return os.path.abspath("ttft.jsonl")
        state = os.path.join(home, ".local", "state")
    return os.path.join(state, "ttft", "ttft.jsonl")


def _text(value: str) -> str:
    if not value.isprintable() or len(value) > 64:
        raise ValueError("expected at most 64 printable characters.")
    return value


def _host(value: str) -> str:
    bare = value.removeprefix("[").removesuffix("]")
    if not (HOST_NAME.match(bare) or is_ipv6(bare)):
        raise ValueError(
            f"{value[:40]!r} is not a host. Expected an address to listen on, such as 127.0.0.1."
        )
    return bare


def _log(value: str) -> str:
    if value == "-":
        return value
    path = os.path.abspath(os.path.expanduser(value))
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder. Name a file in it, or '-' for stdout.")
    return path


def _file(value: str) -> str:
    path = os.path.abspath(os.path.expanduser(value))
    if not os.path.isfile(path):
        raise ValueError(f"there is no file {path}. Expected a PEM file with CA certificates.")
    return path


def _proxy(value: str) -> "ForwardProxy | str":
    return "env" if value == "env" else parse_proxy(value)


def _yes(value: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False}
    if value.lower() not in known:
        raise ValueError(f"{value[:40]!r} is neither yes nor no. Use 1 or 0.")
    return known[value.lower()]


def _whole(least: int, most: int, example: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not (value.isascii() and value.isdigit() and least <= int(value[:20]) <= most):
            raise ValueError(
                f"{value[:40]!r} is not a whole number from {least} to {most}. "
                f"Use for example {example}."
            )
        return int(value)

    return parse


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e9:
        raise ValueError(f"{value[:40]!r} is not a number of seconds. Use for example 30.")
    return seconds


def _milliseconds(count: int, example: str) -> Callable[[str], tuple[float, ...]]:
    def parse(value: str) -> tuple[float, ...]:
        try:
            found = tuple(float(part) for part in value.split(","))
        except ValueError:
            found = ()
        if len(found) != count or not all(0 < a < b < 1e9 for a, b in pairwise(found)):
            raise ValueError(
                f"{value[:40]!r} is not {count} rising numbers of milliseconds. "
                f"Use for example {example}."
            )
        return found

    return parse


def _limit(value: str) -> float | None:
    return None if value.lower() in ("none", "off") else _seconds(value) or None


class Setting(NamedTuple):
    """One setting: its place in `Config`, and how its text is read."""

    field: str
    flag: str
    variable: str
    parse: Callable[[str], object]


def _setting(name: str, parse: Callable[[str], object], field: str | None = None) -> Setting:
    return Setting(field or name, "--" + name.replace("_", "-"), f"TTFT_{name.upper()}", parse)


SETTINGS: dict[str, Setting] = {
    "upstream": _setting("upstream", parse_upstream),
    "host": _setting("host", _host),
    "port": _setting("port", _whole(0, 65535, 8787)),
    "log": _setting("log", _log),
    "label": _setting("label", _text),
    "tags": _setting("tags", _yes),
    "ca_file": _setting("ca_file", _file),
    "insecure": _setting("insecure", _yes),
    "upstream_proxy": _setting("upstream_proxy", _proxy, "forward_proxy"),
    "http2": _setting("http2", _yes),
    "connect_timeout": _setting("connect_timeout", _limit, "connect_timeout_s"),
    "idle_timeout": _setting("idle_timeout", _limit, "idle_timeout_s"),
    "total_timeout": _setting("total_timeout", _limit, "total_timeout_s"),
    "pool_limit": _setting("pool_limit", _whole(1, 1_000_000, 1000)),
    "keepalive": _setting("keepalive", _seconds, "keepalive_s"),
    "client_keepalive": _setting("client_keepalive", _seconds, "client_keepalive_s"),
    "shutdown_grace": _setting("shutdown_grace", _seconds, "shutdown_grace_s"),
    "bands": _setting("bands", _milliseconds(3, "100,300,1000"), "bands_ms"),
    "ttft_alert": _setting("ttft_alert", _milliseconds(2, "1000,2000"), "ttft_alert_ms"),
    "tpot_alert": _setting("tpot_alert", _milliseconds(2, "100,200"), "tpot_alert_ms"),
    "max_head_bytes": _setting("max_head_bytes", _whole(1024, 16 * 1024 * 1024, 262144)),
}
"""Every setting by the name that flags use."""
