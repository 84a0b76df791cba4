"""proxy/serve/config.py: settings from flags and environment, and the join rule."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.serve.address import parse_upstream
from proxy.serve.config import SETTINGS, Config, ConfigError, default_log, join

TARGETS = st.binary(max_size=40)
UPSTREAM = {"upstream": "https://api.example"}


@pytest.mark.parametrize(
    ("upstream", "target", "joined"),
    [
        (b"", b"/v1/chat/completions", b"/v1/chat/completions"),
        (b"/v1", b"/v1/chat/completions", b"/v1/v1/chat/completions"),
        (b"/v1", b"/chat/completions", b"/v1/chat/completions"),
        (b"/v1/", b"/chat/completions", b"/v1/chat/completions"),
        (b"/api/v4", b"/v1/files/v1/foo", b"/api/v4/v1/files/v1/foo"),
        (b"/api", b"//v1/x", b"/api//v1/x"),
        (b"/api", b"/", b"/api/"),
        (b"/api", b"", b"/api/"),
        (b"/api", b"?a=1", b"/api/?a=1"),
        (b"", b"", b"/"),
        (b"", b"*", b"*"),
        (b"/api", b"*", b"/api/"),
        (b"", b"*x", b"/*x"),
        (b"/api", b"http://other.example:1/p%2Fq/../r?x=//y", b"/api/p%2Fq/../r?x=//y"),
        (b"/api", b"HTTP://other.example", b"/api/"),
        (b"/api", b"http://other.example?a=http://b", b"/api/?a=http://b"),
        (b"", b"other.example:443", b"/other.example:443"),
        (b"", b"/a+b?c=%zz&d=\xff", b"/a+b?c=%zz&d=\xff"),
        (b"", b"/http://x/y", b"/http://x/y"),
    ],
)
def test_join(upstream: bytes, target: bytes, joined: bytes) -> None:
    """Prefix and target, one slash at the seam, nothing guessed, no host from the client."""
    base = parse_upstream("https://h" + upstream.decode())
    assert join(base, target, tags=False) == (joined, None)


@pytest.mark.parametrize(
    ("target", "joined", "label"),
    [
        (b"/t/before/v1/x?y", b"/api/v1/x?y", "before"),
        (b"/t/A.b_c-9", b"/api/", "A.b_c-9"),
        (b"/t/a?x=1", b"/api/?x=1", "a"),
        (b"/t/a//v1", b"/api//v1", "a"),
        (b"http://h/t/a/v1", b"/api/v1", "a"),
        (b"/t/a/t/b/v1", b"/api/t/b/v1", "a"),
        (b"/t/", b"/api/t/", None),
        (b"/t/a%20b/v1", b"/api/t/a%20b/v1", None),
        (b"/t/" + b"a" * 65 + b"/v1", b"/api/t/" + b"a" * 65 + b"/v1", None),
        (b"/T/a/v1", b"/api/T/a/v1", None),
        (b"//t/a/v1", b"/api//t/a/v1", None),
        (b"/v1/t/a", b"/api/v1/t/a", None),
    ],
)
def test_join_with_tags(target: bytes, joined: bytes, label: str | None) -> None:
    """A leading /t/<tag> is taken off and becomes the label; anything else stays."""
    assert join(parse_upstream("https://h/api"), target, tags=True) == (joined, label)


@given(TARGETS, st.sampled_from([b"", b"/v1", b"/api/v4", b"/a//b"]))
def test_join_keeps_every_byte(path: bytes, prefix: bytes) -> None:
    """Whatever stands in an origin-form target, the upstream gets it behind the prefix."""
    base = parse_upstream("https://h" + prefix.decode())
    target = b"/" + path
    assert join(base, target, tags=False) == (prefix + target, None)


@given(TARGETS, st.booleans())
def test_join_always_makes_a_rooted_target(target: bytes, tags: bool) -> None:
    """Whatever a client sends, what is sent on begins with the prefix and a slash, or is "*"."""
    joined = join(parse_upstream("https://h/api"), target, tags)
    assert joined.target.startswith(b"/api/")
    bare = join(parse_upstream("https://h"), target, tags)
    assert bare.target.startswith(b"/") or bare.target == b"*"
    assert joined.label == bare.label


@given(TARGETS, st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True))
def test_a_tag_changes_nothing_but_the_label(path: bytes, tag: str) -> None:
    """With and without a tag in front, the same target goes out."""
    base = parse_upstream("https://h/api")
    tagged = join(base, b"/t/" + tag.encode() + b"/" + path, tags=True)
    assert tagged == (join(base, b"/" + path, tags=False).target, tag)


def test_defaults() -> None:
    """Everything but the upstream has a default."""
    config = Config.load(UPSTREAM, {"HOME": "/home/me"})
    assert (config.host, config.port, config.log) == (
        "127.0.0.1",
        8787,
        "/home/me/.local/state/ttft/ttft.jsonl",
    )
    assert config.forward_proxy is None
    assert config.connect_timeout_s == 10
    assert config.idle_timeout_s is None


def test_a_flag_wins_over_its_variable() -> None:
    """And an empty variable counts as not set."""
    env = {"TTFT_PORT": "1", "TTFT_LABEL": "", "TTFT_TAGS": "yes", "TTFT_HTTP2": "off"}
    config = Config.load({**UPSTREAM, "port": "2", "label": None}, env)
    assert (config.port, config.label, config.tags, config.http2) == (2, None, True, False)
    assert not Config.load({**UPSTREAM, "tags": False}, env).tags


def test_every_setting_can_be_given_both_ways(tmp_path: Path) -> None:
    """Flags and variables are read by the same rule and end in the same field."""
    pem = tmp_path / "ca.pem"
    pem.touch()
    texts = {
        "upstream": "http://h/x",
        "host": "::",
        "port": "0",
        "log": str(tmp_path / "log"),
        "label": "after",
        "tags": "1",
        "ca_file": str(pem),
        "insecure": "1",
        "upstream_proxy": "http://p:1",
        "http2": "1",
        "connect_timeout": "1.5",
        "idle_timeout": "30",
        "total_timeout": "none",
        "pool_limit": "5",
        "keepalive": "0",
        "client_keepalive": "7",
        "shutdown_grace": "0.5",
        "max_head_bytes": "65536",
        "bands": "50,200,800",
        "ttft_alert": "500,1500",
        "tpot_alert": "50,80.5",
    }
    assert texts.keys() == SETTINGS.keys()
    by_flags = Config.load(dict(texts), {})
    by_variables = Config.load({}, {f"TTFT_{name.upper()}": v for name, v in texts.items()})
    assert by_flags == by_variables
    untouched = {"total_timeout_s"}
    default = Config(upstream=parse_upstream("http://other"))
    for setting in SETTINGS.values():
        same = getattr(by_flags, setting.field) == getattr(default, setting.field)
        assert same == (setting.field in untouched), setting.field


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("upstream", "https://u:hidden@h?x", "--upstream: "),
        ("upstream_proxy", "ftp://u:hidden@h", "--upstream-proxy: "),
        ("host", "a b", "is not a host"),
        ("host", "127.0.0.1:8787", "is not a host"),
        ("port", "65536", "from 0 to 65535"),
        ("port", "-1", "from 0 to 65535"),
        ("port", "8" * 5000, "from 0 to 65535"),
        ("port", "٣", "from 0 to 65535"),
        ("log", "/", "is a folder"),
        ("label", "a\x1b[31m", "printable"),
        ("tags", "maybe", "neither yes nor no"),
        ("ca_file", "/no/such/file.pem", "there is no file"),
        ("idle_timeout", "soon", "is not a number of seconds"),
        ("idle_timeout", "nan", "is not a number of seconds"),
        ("connect_timeout", "-1", "is not a number of seconds"),
        ("connect_timeout", "1e300", "is not a number of seconds"),
        ("pool_limit", "0", "from 1 to"),
        ("max_head_bytes", "10", "from 1024 to"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str, says: str) -> None:
    """One sentence with the flag, or the variable, and without any secret."""
    with pytest.raises(ConfigError, match=says) as caught:
        Config.load({**UPSTREAM, name: value}, {})
    assert str(caught.value).startswith("--" + name.replace("_", "-"))
    assert "hidden" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"^TTFT_{name.upper()}: "):
        Config.load({}, {"TTFT_UPSTREAM": "http://h", f"TTFT_{name.upper()}": value})


def test_no_upstream() -> None:
    """The one thing that has to be said says how."""
    with pytest.raises(ConfigError, match="--upstream https://"):
        Config.load({}, {})


def test_environment_proxies_are_used_only_when_asked_for() -> None:
    """A dead proxy in the environment is nobody's business unless --upstream-proxy says env."""
    env = {"HTTPS_PROXY": "http://me:hidden@127.0.0.1:9", "NO_PROXY": "localhost"}
    assert Config.load(UPSTREAM, env).forward_proxy is None
    config = Config.load({**UPSTREAM, "upstream_proxy": "env"}, env)
    assert config.forward_proxy is not None
    assert config.forward_proxy.shown == "http://127.0.0.1:9"
    assert "hidden" not in repr(config)
    local = {"upstream": "http://localhost:1", "upstream_proxy": "env"}
    assert Config.load(local, {**env, "HTTP_PROXY": "http://p:1"}).forward_proxy is None
    with pytest.raises(ConfigError, match="HTTPS_PROXY"):
        Config.load({**UPSTREAM, "upstream_proxy": "env"}, {"HTTPS_PROXY": "ftp://x"})


def test_default_log_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative XDG_STATE_HOME is ignored; without any home, the log is in the current folder."""
    assert default_log({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == "/s/ttft/ttft.jsonl"
    assert default_log({"XDG_STATE_HOME": "s", "HOME": "/h"}) == "/h/.local/state/ttft/ttft.jsonl"
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert default_log({}) == str(Path.cwd() / "ttft.jsonl")


def test_a_relative_log_is_made_absolute() -> None:
    """Other verbs, started elsewhere, have to find it."""
    assert Config.load({**UPSTREAM, "log": "x.jsonl"}, {}).log == str(Path.cwd() / "x.jsonl")
    assert Config.load({**UPSTREAM, "log": "-"}, {}).log == "-"


def test_repr_hides_credentials() -> None:
    """A configuration that is printed somewhere gives nothing away."""
    config = Config.load({"upstream": "https://me:hidden@h"}, {})
    assert config.upstream.authorization is not None
    assert "hidden" not in repr(config)
    assert config.upstream.authorization.decode() not in repr(config)
