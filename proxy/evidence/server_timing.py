"""`Server-Timing` (W3C Server Timing), in headers and in trailers.

A list of metrics: `name;dur=12.5;desc="text", ...`, durations in milliseconds. Names are free, so
only a few are known to be totals: Google's front end (`gfet4t7`), Moonshot (`inner`), Cloudflare
(`edge`, `origin`, `cfWorker`), Anthropic (`x-originResponse`) and the common `total`. The rest is
context. A metric without `dur` says nothing about time; one whose `dur` cannot be read is kept
raw. The first `dur` of a metric counts, as the specification has it; `desc` is ignored.
"""

import re

from proxy.account import Claim, ClaimKind
from proxy.evidence._api import RawHeaders
from proxy.evidence._values import header_texts, microseconds, raw_value

_TOTALS = frozenset({"cfworker", "edge", "gfet4t7", "inner", "origin", "total", "x-originresponse"})
_VALUE_LIMIT = 4096
_METRIC_LIMIT = 32

# A quoted string is one piece, whatever separators it holds.
_QUOTED = r'"(?:[^"\\]|\\.)*"?'
_METRIC = re.compile(rf"(?:{_QUOTED}|[^,\"])+")
_PARAM = re.compile(rf"(?:{_QUOTED}|[^;\"])+")


class ServerTiming:
    """Totals as lumps, everything else with a duration as context."""

    name = "server_timing"
    markers: tuple[str, ...] = ()
    fields: tuple[bytes, ...] = (b"server-timing",)

    def from_headers(self, headers: RawHeaders) -> tuple[Claim, ...]:
        """One claim per metric with a duration, over all lines, at most 32."""
        claims = []
        for text in header_texts(headers, b"server-timing"):
            for metric in _METRIC.findall(text[:_VALUE_LIMIT]):
                claim = self._claim(metric)
                if claim is not None:
                    claims.append(claim)
        return tuple(claims[:_METRIC_LIMIT])

    def _claim(self, metric: str) -> Claim | None:
        name, *params = [part.strip() for part in _PARAM.findall(metric)] or [""]
        dur = _duration(params)
        if not name or dur is None:
            return None
        return Claim(
            source=self.name,
            name=str(raw_value(name)),
            kind=ClaimKind.LUMP if name.lower() in _TOTALS else ClaimKind.CONTEXT,
            raw=raw_value(dur),
            value_us=microseconds(dur, 1000),
        )

    def from_event(self, document: object) -> tuple[Claim, ...]:
        """Nothing."""
        return ()


def _duration(params: list[str]) -> str | None:
    for param in params:
        key, _, value = param.partition("=")
        if key.strip().lower() == "dur":
            return value.strip().strip('"').strip()
    return None


SERVER_TIMING = ServerTiming()
