"""The response head and the framing of a body. Pure."""

from . import evidence, wire
from .answer import Asked
from .script import Script, ScriptError
from .step import Draft, Moment
from .wire import BodyWriter


class ResponseHead:
    """Decides how the body is framed, and writes heads for it."""

    def __init__(self, script: Script, asked: Asked, draft: Draft) -> None:
        self._script = script
        self._draft = draft
        self._status = draft.status if script.status is None else script.status
        self._version = script.http_version or "1.1"
        old = asked.http10 or self._version == "1.0"
        known = draft.document or draft.length is not None
        framing = script.framing or ("length" if known else "eof" if old else "chunked")
        if script.trailers and framing != "chunked":
            framing = "chunked"
        self.sends_body = not asked.head_only and self._status not in (204, 304)
        self.framing = framing if self._status not in (204, 304) else "none"
        self.closes = script.close or asked.close or (framing == "eof" and self.sends_body)
        self._says_keep_alive = asked.http10 and not self.closes
        self.needs_moment = script.digest or any(
            source in evidence.HEADER_SOURCES for source in script.evidence or ()
        )

    def writer(self) -> BodyWriter:
        """What puts one body on the wire."""
        chunked = self.framing == "chunked"
        return BodyWriter(chunked, self._script.content_encoding, self._script.trailers)

    def render(self, moment: Moment | None, length: int | None) -> bytes:
        """The head. `moment` matters only to a head that `needs_moment`."""
        own = self._default_headers(length)
        own += self._draft.headers
        extra = list(self._script.extra_headers)
        if moment is not None:
            extra += self._measured(moment)
        named = {name.lower() for name, _ in extra}
        pairs = [pair for pair in own if pair[0].lower() not in named]
        return wire.head(self._version, self._status, self._script.reason, [*pairs, *extra])

    def _default_headers(self, length: int | None) -> list[tuple[str, str]]:
        script, draft = self._script, self._draft
        content_type = draft.content_type if script.content_type is None else script.content_type
        pairs = []
        if content_type and self.framing != "none":
            pairs.append(("Content-Type", content_type))
        if script.content_encoding and self.framing != "none":
            pairs.append(("Content-Encoding", script.content_encoding))
        if self.framing == "length":
            if length is None:
                raise ScriptError("framing: the length of this answer is not known beforehand")
            pairs.append(("Content-Length", str(length)))
        elif self.framing == "chunked":
            pairs.append(("Transfer-Encoding", "chunked"))
            if script.trailers:
                pairs.append(("Trailer", ", ".join(name for name, _ in script.trailers)))
        if self.closes:
            pairs.append(("Connection", "close"))
        elif self._says_keep_alive:
            pairs.append(("Connection", "keep-alive"))
        return pairs

    def _measured(self, moment: Moment) -> list[tuple[str, str]]:
        script = self._script
        pairs = evidence.headers(script.evidence or (), moment.instants, script.evidence_override)
        if script.digest:
            pairs.append(("X-Sim-Body-Sha256", moment.received.body_sha256))
            pairs.append(("X-Sim-Body-Bytes", str(moment.received.body_bytes)))
        return pairs
