"""Which fields are relayed: everything but hop-by-hop fields and Host.

A field is a pair of bytes, name and value as they came: case, order, repeats and non-ASCII bytes
are kept. Sources: RFC 9110 section 7.6.1 (Connection and the names it lists), section 11.7
(Proxy-Authenticate, Proxy-Authorization), RFC 9113 section 3.1 (HTTP2-Settings).
"""

from collections.abc import Iterable, Sequence

Fields = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
    }
)
FRAMING = frozenset({b"content-length", b"host", b"transfer-encoding"})
"""Fields that no Connection header can take away: they are rewritten or kept by rule."""


def values(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """All values of the field `name` (lower case), in order."""
    return [value for key, value in fields if key.lower() == name]


def first(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of the field `name` (lower case), or None."""
    for key, value in fields:
        if key.lower() == name:
            return value
    return None


def tokens(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> frozenset[bytes]:
    """The comma-separated, lower-cased tokens of every field `name`."""
    return frozenset(
        token
        for value in values(fields, name)
        for token in (part.strip().lower() for part in value.split(b","))
        if token
    )


def _dropped(fields: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    listed = tokens(fields, b"connection")
    return HOP_BY_HOP | (listed - FRAMING) if listed else HOP_BY_HOP


def for_upstream(
    fields: Sequence[tuple[bytes, bytes]], host: bytes, authorization: bytes | None = None
) -> Fields:
    """The request's fields for upstream: Host replaced where it stood, hop-by-hop fields left out.

    Host comes first when the client sent none; repeated Host fields become one. `authorization`
    (from user information in the configured URL) is added only when the client sent none.
    """
    dropped = _dropped(fields)
    out: Fields = []
    host_seen = False
    for name, value in fields:
        lower = name.lower()
        if lower == b"host":
            if not host_seen:
                out.append((name, host))
                host_seen = True
        elif lower not in dropped:
            out.append((name, value))
            if lower == b"authorization":
                authorization = None
    if not host_seen:
        out.insert(0, (b"Host", host))
    if authorization is not None:
        out.append((b"Authorization", authorization))
    return out


def for_client(
    fields: Sequence[tuple[bytes, bytes]], *, keep_length: bool, keep_coding: bool
) -> Fields:
    """The response's fields for the client: hop-by-hop fields left out.

    `keep_length` and `keep_coding` say whether Content-Length and Transfer-Encoding still describe
    the framing towards the client (RFC 9112 section 6.3).
    """
    dropped = _dropped(fields)
    if not keep_length:
        dropped |= {b"content-length"}
    if not keep_coding:
        dropped |= {b"transfer-encoding"}
    return [(name, value) for name, value in fields if name.lower() not in dropped]
