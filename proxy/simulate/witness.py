"""What arrived, when, and how it ended: the simulator as a witness of its clients."""

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from .request import Head, Pairs

MAX_KEPT_BODY = 1024 * 1024
MAX_READ_BODY = 16 * 1024 * 1024
"""What is held until the request has been understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it stood when it was asked for; instants are ns of the simulator's clock.

    Header texts are Latin-1, names as sent. `body` holds at most the first MiB; length and digest
    are of everything. `timeline` holds the instants at which parts of the answer were handed to
    the transport; the names are those of `Step`, and "continue" and "ping".
    """

    connection: int
    method: str
    target: str
    http_version: str
    headers: tuple[tuple[str, str], ...]
    raw_head: bytes
    framing: str
    head_at: int
    first_body_at: int | None
    complete_at: int | None
    body: bytes
    body_bytes: int
    body_sha256: str
    trailers: tuple[tuple[str, str], ...]
    timeline: tuple[tuple[str, int], ...]
    ended_how: str | None
    """"complete", "cut", "client_fin", "client_reset" or "server"; None while it runs."""
    ended_at: int | None
    closed_how: str | None
    """How the connection ended: "client_fin", "client_reset" or "server"."""
    closed_at: int | None

    def values(self, name: str) -> tuple[str, ...]:
        """Every value of a header field, in order."""
        wanted = name.lower()
        return tuple(value for key, value in self.headers if key.lower() == wanted)

    def instants(self, name: str) -> tuple[int, ...]:
        """The instants of one kind in the timeline."""
        return tuple(at for key, at in self.timeline if key == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """One connection as it stood when it was asked for."""

    id: int
    peer: str
    opened_at: int
    requests: int
    closed_at: int | None
    closed_how: str | None

    @property
    def open(self) -> bool:
        """Whether it still stands."""
        return self.closed_at is None


@dataclass(slots=True)
class Link:
    """One connection while it lives."""

    id: int
    peer: str
    opened_at: int
    requests: int = 0
    closed_at: int | None = None
    closed_how: str | None = None

    def snapshot(self) -> Connected:
        """As it stands now."""
        return Connected(
            id=self.id,
            peer=self.peer,
            opened_at=self.opened_at,
            requests=self.requests,
            closed_at=self.closed_at,
            closed_how=self.closed_how,
        )


class Exchange:
    """One request while it is received and answered."""

    __slots__ = (
        "_digest",
        "_parts",
        "_witness",
        "body_bytes",
        "complete_at",
        "ended_at",
        "ended_how",
        "first_body_at",
        "head",
        "head_at",
        "link",
        "timeline",
        "trailers",
    )

    def __init__(self, witness: "Witness", link: Link, head: Head, now: int) -> None:
        self._witness = witness
        self.link = link
        self.head = head
        self.head_at = now
        self.first_body_at: int | None = None
        self.complete_at: int | None = None
        self.trailers: Pairs = ()
        self.body_bytes = 0
        self.timeline: list[tuple[str, int]] = []
        self.ended_how: str | None = None
        self.ended_at: int | None = None
        self._parts: list[bytes] = []
        self._digest = hashlib.sha256()
        link.requests += 1
        witness.exchanges.append(self)
        witness.tell()

    def add(self, data: bytes, now: int) -> None:
        """Body bytes arrived."""
        if self.first_body_at is None:
            self.first_body_at = now
        if self.body_bytes < MAX_READ_BODY:
            self._parts.append(data)
        self.body_bytes += len(data)
        self._digest.update(data)

    def complete(self, trailers: Pairs, now: int) -> None:
        """The request is complete."""
        self.trailers = trailers
        self.complete_at = now
        self._witness.tell()

    @property
    def body(self) -> bytes:
        """The body as far as it is held."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    def forget(self) -> None:
        """The request is understood: keep no more of its body than the witness shows."""
        if self.body_bytes > MAX_KEPT_BODY:
            self._parts = [self.body[:MAX_KEPT_BODY]]

    def end(self, how: str, now: int) -> None:
        """The exchange is over; the first word stands."""
        if self.ended_how is None:
            self.ended_how = how
            self.ended_at = now
            self._witness.tell()

    def snapshot(self) -> Received:
        """As it stands now."""
        head = self.head
        return Received(
            connection=self.link.id,
            method=head.method.decode("latin-1"),
            target=head.target.decode("latin-1"),
            http_version=head.version.decode("latin-1").removeprefix("HTTP/"),
            headers=_texts(head.headers),
            raw_head=head.raw,
            framing=head.framing,
            head_at=self.head_at,
            first_body_at=self.first_body_at,
            complete_at=self.complete_at,
            body=self.body[:MAX_KEPT_BODY],
            body_bytes=self.body_bytes,
            body_sha256=self._digest.hexdigest(),
            trailers=_texts(self.trailers),
            timeline=tuple(self.timeline),
            ended_how=self.ended_how,
            ended_at=self.ended_at,
            closed_how=self.link.closed_how,
            closed_at=self.link.closed_at,
        )


def _texts(pairs: Pairs) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs)


class Witness:
    """Remembers connections and requests, and tells those who wait for a change.

    `keep` is how many of each are remembered, the newest; None is all. With 0 the instants of
    tokens are not kept either, so that load can run for hours.
    """

    def __init__(self, keep: int | None = None) -> None:
        self.keeps_timelines = keep != 0
        self.exchanges: deque[Exchange] = deque(maxlen=keep)
        self.links: deque[Link] = deque(maxlen=keep)
        self.open = 0
        self.changed: set[Callable[[], None]] = set()
        self._made = 0

    def connect(self, peer: str, now: int) -> Link:
        """A connection was made."""
        self._made += 1
        self.open += 1
        link = Link(self._made, peer, now)
        self.links.append(link)
        self.tell()
        return link

    def disconnect(self, link: Link, how: str, now: int) -> None:
        """A connection is gone."""
        self.open -= 1
        link.closed_how = how
        link.closed_at = now
        self.tell()

    def tell(self) -> None:
        """Something changed."""
        for callback in tuple(self.changed):
            callback()
