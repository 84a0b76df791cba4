"""How a response body is framed towards the client. Pure.

Upstream's framing is kept. Only an end that the client's version of HTTP cannot see is said in
another way (RFC 9112 section 6): chunked to HTTP/1.1 when upstream's body ends with its
connection, the end of our connection to HTTP/1.0 when upstream's body is chunked.
"""

from enum import Enum

from proxy.serve.headers import Fields, for_client
from proxy.upstream.wire import Framing


class Reframe(Enum):
    """What happens to the bytes of a body on their way."""

    AS_READ = "as_read"
    CHUNK = "chunk"
    UNTIL_CLOSE = "until_close"


def choose(framing: Framing, client_version: str, *, wire: bool) -> Reframe:
    """The framing towards the client; `wire` says that reads come with upstream's own chunks."""
    if framing in (Framing.NONE, Framing.LENGTH):
        return Reframe.AS_READ
    if client_version == "1.0":
        return Reframe.UNTIL_CLOSE
    if framing is Framing.CHUNKED and wire:
        return Reframe.AS_READ
    return Reframe.CHUNK


def fields_for(fields: Fields, framing: Framing, reframe: Reframe) -> Fields:
    """The response's fields for the client, with the framing that `reframe` says."""
    kept = for_client(
        fields,
        keep_length=framing in (Framing.NONE, Framing.LENGTH),
        keep_coding=framing is Framing.NONE
        or (framing is Framing.CHUNKED and reframe is Reframe.AS_READ),
    )
    if reframe is Reframe.CHUNK:
        kept.append((b"Transfer-Encoding", b"chunked"))
    return kept


def encode(reframe: Reframe, payload: bytes) -> bytes:
    """The payload of one read as it goes to a client that does not get the read itself."""
    if reframe is Reframe.CHUNK and payload:
        return b"%x\r\n%b\r\n" % (len(payload), payload)
    return payload


def last_bytes(reframe: Reframe, trailers: Fields) -> bytes:
    """What still has to be said at the end of the body."""
    if reframe is not Reframe.CHUNK:
        return b""
    return b"0\r\n" + b"".join(b"%b: %b\r\n" % field for field in trailers) + b"\r\n"
