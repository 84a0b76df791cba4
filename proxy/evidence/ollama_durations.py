"""The durations in Ollama's last object, in nanoseconds.

Source: ollama `api/types.go` (`Metrics`), `server/routes.go`. `load_duration` runs from the parsed
request to a ready runner, so it holds the wait for the scheduler, and is small but not zero when
the model is loaded already. `prompt_eval_duration` holds the first token. `total_duration` runs to
the end of the answer and is no part of TTFT.
"""

from proxy.account import Claim, ClaimKind, Segment
from proxy.evidence._api import RawHeaders
from proxy.evidence._values import microseconds, raw_value

_NANOSECOND_US = 0.001

_CLAIMS = (
    ("load_duration", ClaimKind.DURATION, Segment.INITIALIZATION, (Segment.QUEUE,)),
    ("prompt_eval_duration", ClaimKind.DURATION, Segment.PREPROCESSING, (Segment.GENERATION,)),
    ("eval_duration", ClaimKind.CONTEXT, None, ()),
    ("total_duration", ClaimKind.CONTEXT, None, ()),
)


class OllamaDurations:
    """Load and prefill as durations, the rest as context."""

    name = "ollama"
    markers: tuple[str, ...] = tuple(name for name, *_ in _CLAIMS)
    fields: tuple[bytes, ...] = ()

    def from_headers(self, headers: RawHeaders) -> tuple[Claim, ...]:
        """Nothing."""
        return ()

    def from_event(self, document: object) -> tuple[Claim, ...]:
        """The claims of the object that ends an answer."""
        if not isinstance(document, dict) or document.get("done") is not True:
            return ()
        return tuple(
            Claim(
                source=self.name,
                name=name,
                kind=kind,
                raw=raw_value(document[name]),
                value_us=microseconds(document[name], _NANOSECOND_US),
                segment=segment,
                includes=includes,
            )
            for name, kind, segment, includes in _CLAIMS
            if name in document
        )


OLLAMA_DURATIONS = OllamaDurations()
