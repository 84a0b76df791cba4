"""Everything seen of one request, until it becomes a record."""

import re
from dataclasses import dataclass, field

from proxy.account import Phase, Trace
from proxy.record import EndedBy, Outcome
from proxy.serve.config import Joined
from proxy.serve.ending import Ending
from proxy.serve.exchange import Exchange
from proxy.serve.headers import Fields
from proxy.serve.tap import Tap
from proxy.upstream.client import ConnectionFacts

_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_END = re.compile(rb"[?#]")


def bare_path(target: bytes) -> str:
    """The path of a target, for people: no query and no authority, which may hold credentials."""
    path = _END.split(target, maxsplit=1)[0]
    found = _AUTHORITY.match(path)
    return path[found.end() if found else 0 :].decode("latin-1")


UNSETTLED = Ending(Outcome.PROXY_ERROR, EndedBy.PROXY, Phase.POOL, "Unsettled")


@dataclass(slots=True, eq=False)
class Observed:
    """One request: mutable while it runs, owned by the relay, read once at its end."""

    exchange: Exchange
    trace: Trace
    joined: Joined
    started_wall_ns: int
    """The wall clock at `request_start`: the record's one anchor."""
    tap: Tap | None = None
    inflight: int = 0
    status: int | None = None
    response_fields: Fields = field(default_factory=list)
    relay_delay_ns: int | None = None
    connection: ConnectionFacts = field(default_factory=ConnectionFacts)
    ending: Ending = UNSETTLED

    @property
    def path(self) -> str:
        """The path as sent to upstream, without the query."""
        return bare_path(self.joined.target)

    @property
    def title(self) -> str:
        """Method and path for a person."""
        return f"{self.exchange.head.method} {self.path}"
