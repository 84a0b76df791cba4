"""The requests under way: how many, and, for a person who asks, which and since when."""

from dataclasses import dataclass, field
from typing import Protocol

from proxy.account import Clock, Phase, Trace


class Open(Protocol):
    """What the ledger shows of a request."""

    trace: Trace

    @property
    def title(self) -> str:
        """Method and path, without the query."""
        ...


@dataclass(slots=True)
class Ledger:
    """Requests that have no record yet."""

    _open: set[Open] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, request: Open) -> int:
        """A request begins; how many were under way when it arrived."""
        others = len(self._open)
        self._open.add(request)
        return others

    def leave(self, request: Open) -> None:
        """A request has its record."""
        self._open.discard(request)

    def describe(self, clock: Clock) -> list[str]:
        """One line per open request, oldest first: age, phase, method and path."""
        now = clock()
        requests = sorted(self._open, key=lambda request: request.trace.start)
        lines = [
            f"{(now - request.trace.start) / 1e9:9.1f} s  {_IN_WORDS[request.trace.phase]:34}"
            f"  {request.title}"
            for request in requests
        ]
        return [f"{len(lines)} open request{'' if len(lines) == 1 else 's'}", *lines]


_IN_WORDS = {
    Phase.POOL: "waiting for a pool slot",
    Phase.DNS: "resolving the name",
    Phase.TCP: "connecting",
    Phase.TLS: "TLS handshake",
    Phase.OWN: "about to send",
    Phase.UPLOAD: "the client is still sending",
    Phase.SEND: "sending",
    Phase.WAIT: "sent, no response head yet",
    Phase.HEAD: "response head, no body yet",
    Phase.BODY: "body, no token yet",
    Phase.STREAM: "streaming tokens",
    Phase.REQUEST_HEAD: "refused",
    Phase.DONE: "response complete",
}
