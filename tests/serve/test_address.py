"""proxy/serve/address.py: URLs of upstreams and forward proxies, NO_PROXY."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.serve.address import (
    Upstream,
    is_ipv6,
    parse_proxy,
    parse_upstream,
    proxy_from_environment,
)


@pytest.mark.parametrize(
    ("url", "origin", "authority", "prefix", "port"),
    [
        ("https://api.example", "https://api.example", b"api.example", b"", 443),
        ("HTTPS://API.Example/", "https://api.example", b"api.example", b"", 443),
        ("https://h:443/v1", "https://h", b"h", b"/v1", 443),
        ("http://h:443/v1/", "http://h:443", b"h:443", b"/v1", 443),
        ("http://h:80", "http://h", b"h", b"", 80),
        ("https://relay.example/api//", "https://relay.example", b"relay.example", b"/api", 443),
        ("https://h//v1", "https://h", b"h", b"//v1", 443),
        ("https://h/a%2Fb/../c+d", "https://h", b"h", b"/a%2Fb/../c+d", 443),
        ("http://[::1]:8080/v1", "http://[::1]:8080", b"[::1]:8080", b"/v1", 8080),
        ("http://[FE80::1%25eth0]", "http://[fe80::1]", b"[fe80::1]", b"", 80),
        ("http://my_service:9000", "http://my_service:9000", b"my_service:9000", b"", 9000),
    ],
)
def test_upstream_url(url: str, origin: str, authority: bytes, prefix: bytes, port: int) -> None:
    """Host in lower case, the port only where it is not the scheme's, no slash at the end."""
    upstream = parse_upstream(url)
    assert (upstream.origin, upstream.authority) == (origin, authority)
    assert (upstream.prefix, upstream.port) == (prefix, port)
    assert upstream.authorization is None
    assert upstream.url == origin + prefix.decode()


def test_zone_is_kept_for_connecting() -> None:
    """The zone of a link-local address says where to connect; it is no part of Host."""
    assert parse_upstream("http://[fe80::1%25eth0]").host == "fe80::1%eth0"


def test_user_information_becomes_basic_authorization() -> None:
    """Percent-encoded user information is decoded, and in no repr."""
    upstream = parse_upstream("https://ab:s%3Acr%40t@h/v1")
    assert upstream.authorization == b"Basic YWI6czpjckB0"
    assert upstream.url == "https://h/v1"
    assert "Basic" not in repr(upstream)
    assert "cr" not in repr(upstream)
    assert parse_upstream("https://key@h").authorization == b"Basic a2V5Og=="


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example/v1",
        "localhost:8080",
        "ftp://h",
        "https://",
        "https:///v1",
        "https://h:0",
        "https://h:99999",
        "https://h:x",
        "https://h/v1?key=sk-hidden",
        "https://h/v1?",
        "https://h/#sk-hidden",
        "https://h/a b",
        "https://h/\n",
        "https://h/ü",
        "https://müller.example",
        "http://[::1",
        "http://[zz]/",
        "https://user:sk-hidden@",
        "user:sk-hidden@h/v1",
        "user:pa://sk-hidden@h",
        "https://user:sk-hid/den@h:p",
        "https://user:sk-hidden?x@h?y",
    ],
)
def test_bad_upstream_url(url: str) -> None:
    """The message says what was expected and quotes no secret."""
    with pytest.raises(ValueError, match=r"[.]$") as caught:
        parse_upstream(url)
    assert "hid" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_an_upstream_or_a_value_error(text: str) -> None:
    """Garbage in, a ValueError out; and what is accepted makes a sendable Host."""
    for url in (text, f"https://{text}"):
        try:
            upstream = parse_upstream(url)
        except ValueError:
            continue
        assert upstream.authority.isascii()
        assert not upstream.prefix.endswith(b"/")
        assert parse_upstream(upstream.url).prefix == upstream.prefix


@given(st.from_regex(r"[a-z0-9:/?#@%.\[\]]{0,12}", fullmatch=True))
def test_no_message_quotes_the_user_information(noise: str) -> None:
    """However a URL is broken, what stands before its last @ stays hidden."""
    message = ""
    try:
        parse_upstream(f"https://user:SECRET{noise}@{noise}:bad")
    except ValueError as error:
        message = str(error)
    assert "SECRET" not in message


def test_forward_proxy_shows_no_credentials() -> None:
    """The URL to use has them, what is shown has not."""
    forward = parse_proxy("http://me:secret@proxy.example:3128")
    assert forward.url == "http://me:secret@proxy.example:3128"
    assert forward.shown == "http://proxy.example:3128"
    assert "secret" not in repr(forward)
    assert parse_proxy("proxy.example:3128").url == "http://proxy.example:3128"
    assert parse_proxy("socks5h://[::1]:1080").shown == "socks5h://[::1]:1080"
    with pytest.raises(ValueError, match="Expected an address"):
        parse_proxy("quic://proxy.example")


ENVIRONMENT = {
    "HTTPS_PROXY": "http://secure:1",
    "http_proxy": "http://plain:2",
    "HTTP_PROXY": "http://shadowed:3",
    "ALL_PROXY": "socks5://all:4",
}


def shown(upstream: str, **env: str) -> str | None:
    forward = proxy_from_environment(parse_upstream(upstream), {**ENVIRONMENT, **env})
    return forward.shown if forward is not None else None


def test_proxy_of_the_environment() -> None:
    """The scheme's variable first, lower case before upper case, then ALL_PROXY."""
    assert shown("https://h") == "http://secure:1"
    assert shown("http://h") == "http://plain:2"
    assert shown("https://h", HTTPS_PROXY="") == "socks5://all:4"
    assert proxy_from_environment(parse_upstream("https://h"), {}) is None
    with pytest.raises(ValueError, match="HTTPS_PROXY: "):
        shown("https://h", HTTPS_PROXY="quic://me:secret@h")


@pytest.mark.parametrize(
    ("no_proxy", "upstream", "bypassed"),
    [
        ("localhost, 10.0.0.0/8", "http://10.1.2.3:8000", True),
        ("localhost, 10.0.0.0/8", "http://11.1.2.3:8000", False),
        ("localhost", "http://localhost:8000", True),
        ("localhost", "http://127.0.0.1:8000", False),
        ("example.com", "https://api.example.com", True),
        (".example.com", "https://api.example.com", True),
        ("*.example.com", "https://api.example.com", True),
        ("example.com", "https://badexample.com", False),
        ("example.com:8443", "https://example.com", False),
        ("example.com:443", "https://example.com", True),
        ("::1", "http://[::1]:9", True),
        ("[::1]:9", "http://[::1]:9", True),
        ("fd00::/8", "http://[fd00::1]", True),
        ("*", "https://anything", True),
        ("", "https://anything", False),
    ],
)
def test_no_proxy(no_proxy: str, upstream: str, bypassed: bool) -> None:
    """Names with their subdomains, addresses, networks, ports."""
    assert (shown(upstream, NO_PROXY=no_proxy) is None) is bypassed


def test_is_ipv6() -> None:
    """With and without a zone; nothing else."""
    assert is_ipv6("::1")
    assert is_ipv6("fe80::1%eth0")
    assert not is_ipv6("127.0.0.1:80")


def test_upstreams_with_different_credentials_differ() -> None:
    """`authorization` is hidden, not ignored."""
    assert Upstream("http", "h", 80, b"", b"a") != Upstream("http", "h", 80, b"", b"b")
