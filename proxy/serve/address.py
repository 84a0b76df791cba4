"""Addresses as people write them: the upstream's URL, forward proxies, NO_PROXY. Pure.

Credentials in URLs are accepted, kept apart, and never part of a `repr` or of an error's text.
Syntax: RFC 3986 section 3.2, and for user information RFC 7617.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
HOST_NAME = re.compile(r"[A-Za-z0-9._~-]+\Z")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_PREFIX = re.compile(r"[!-~]*\Z")


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where requests go. `host` has no brackets; `prefix` has no trailing slash."""

    scheme: str
    host: str
    port: int
    prefix: bytes = b""
    authorization: bytes | None = field(default=None, repr=False)
    """The value of an Authorization field, from user information in the URL (RFC 7617)."""

    @property
    def authority(self) -> bytes:
        """The value of Host: the port only when it is not the scheme's own (RFC 9110, 7.2)."""
        host = f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{host}{port}".encode("ascii")

    @property
    def origin(self) -> str:
        """Scheme and authority, for people and records."""
        return f"{self.scheme}://{self.authority.decode('ascii')}"

    @property
    def url(self) -> str:
        """The whole base URL, without credentials."""
        return self.origin + self.prefix.decode("ascii")


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A proxy on the way to the upstream. `shown` is the URL without credentials."""

    url: str = field(repr=False)
    shown: str


def parse_upstream(url: str) -> Upstream:
    """The upstream of a URL such as `https://user:password@relay.example/api`.

    Raises `ValueError`; its text never holds user information or a query.
    """
    expected = "Expected an address such as https://api.openai.com or http://127.0.0.1:8080/v1."
    if "://" not in url:
        raise ValueError(
            f"{_masked(url)!r} has no scheme. {expected} Put https:// or http:// in front."
        )
    parts, host, port = _split(url, tuple(_DEFAULT_PORTS), expected)
    if parts.query or parts.fragment or url.endswith(("?", "#")):
        raise ValueError(
            f"{_masked(url)!r} must end with its path. Queries are the client's to send; "
            "leave out everything from '?' or '#' on."
        )
    if not _PREFIX.match(parts.path):
        raise ValueError(f"the path of {_masked(url)!r} must be percent-encoded ASCII.")
    return Upstream(
        scheme=parts.scheme,
        host=host.lower(),
        port=port or _DEFAULT_PORTS[parts.scheme],
        prefix=parts.path.rstrip("/").encode("ascii"),
        authorization=_basic(parts),
    )


def parse_proxy(url: str) -> ForwardProxy:
    """A forward proxy; an address without a scheme is an HTTP proxy, as curl reads it."""
    full = url if "://" in url else f"http://{url}"
    expected = "Expected an address such as http://proxy.example:3128 or socks5://127.0.0.1:1080."
    parts, host, port = _split(full, _PROXY_SCHEMES, expected)
    shown_host = f"[{host}]" if ":" in host else host
    shown = f"{parts.scheme}://{shown_host}" + (f":{port}" if port else "")
    return ForwardProxy(url=full, shown=shown)


def proxy_from_environment(upstream: Upstream, env: Mapping[str, str]) -> ForwardProxy | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name for `upstream`.

    Lower-case names win, as in curl. NO_PROXY takes host names (a name covers its subdomains),
    addresses, networks in CIDR form, a port after a colon, and "*". Raises `ValueError`.
    """
    if _bypassed(upstream, env.get("no_proxy") or env.get("NO_PROXY") or ""):
        return None
    for name in (f"{upstream.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if value := env.get(variable):
                try:
                    return parse_proxy(value)
                except ValueError as error:
                    raise ValueError(f"{variable}: {error}") from None
    return None


def _bypassed(upstream: Upstream, no_proxy: str) -> bool:
    try:
        address = ipaddress.ip_address(upstream.host)
    except ValueError:
        address = None
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        if entry == "*":
            return True
        try:
            if address is not None and address in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            pass
        name, colon, port = entry.rpartition(":")
        if colon and port.isdigit():
            if int(port) != upstream.port:
                continue
            entry = name
        entry = entry.strip("[]").removeprefix("*").removeprefix(".")
        if entry and (upstream.host == entry or upstream.host.endswith(f".{entry}")):
            return True
    return False


def _split(
    url: str, schemes: tuple[str, ...], expected: str
) -> tuple[SplitResult, str, int | None]:
    """The parts of `url`, its host and port. Raises `ValueError` without quoting credentials."""
    shown = _masked(url)
    if any(ord(letter) <= 32 for letter in url):
        raise ValueError(f"an address must not contain spaces. {expected}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"{shown!r} is not an address. {expected}") from None
    if parts.scheme not in schemes:
        raise ValueError(f"{shown!r} begins with {parts.scheme!r}. {expected}")
    host = host.replace("%25", "%")  # how URLs write the zone of an IPv6 address (RFC 6874)
    if port == 0 or not (HOST_NAME.match(host) or is_ipv6(host)):
        raise ValueError(f"{shown!r} names no host that can be used. {expected}")
    return parts, host, port


def is_ipv6(host: str) -> bool:
    """Whether `host`, without brackets, is an IPv6 address, with or without a zone."""
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _masked(url: str) -> str:
    """`url` for a message: no user information, no query, even where it cannot be parsed."""
    scheme, separator, rest = url.partition("://")
    if not _SCHEME.match(scheme) or not separator:
        scheme, separator, rest = "", "", url
    _, at, rest = rest.rpartition("@")
    return f"{scheme}{separator}{'***@' if at else ''}{re.split('[?#]', rest)[0][:80]}"


def _basic(parts: SplitResult) -> bytes | None:
    userinfo, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None
    user, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return b"Basic " + base64.b64encode(pair)
