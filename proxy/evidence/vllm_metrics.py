"""vLLM's per-request `metrics` object, on the usage chunk or on a whole answer.

Source: vLLM `entrypoints/generate/base/protocol.py` (pull request 46768); sent when the server was
started with `--enable-per-request-metrics` and, in a stream, when usage was asked for. All in
milliseconds. `queue_time_ms` is QUEUED to SCHEDULED inside the engine, tokenising left out.
`time_to_first_token_ms` starts at SCHEDULED: prefill and first token without the queue, unlike the
Prometheus histogram of the same name.
"""

from proxy.account import Claim, ClaimKind, Segment
from proxy.evidence._api import RawHeaders
from proxy.evidence._values import microseconds, raw_value

_CLAIMS = (
    ("queue_time_ms", ClaimKind.DURATION, Segment.QUEUE, ()),
    (
        "time_to_first_token_ms",
        ClaimKind.DURATION,
        Segment.PREPROCESSING,
        (Segment.GENERATION,),
    ),
    ("generation_time_ms", ClaimKind.CONTEXT, None, ()),
    ("mean_itl_ms", ClaimKind.CONTEXT, None, ()),
)


class VllmMetrics:
    """Queue and prefill as durations, decode as context."""

    name = "vllm"
    markers: tuple[str, ...] = ("metrics",)
    fields: tuple[bytes, ...] = ()

    def from_headers(self, headers: RawHeaders) -> tuple[Claim, ...]:
        """Nothing."""
        return ()

    def from_event(self, document: object) -> tuple[Claim, ...]:
        """The claims of a `metrics` object; a null field was not measured and claims nothing."""
        metrics = document.get("metrics") if isinstance(document, dict) else None
        if not isinstance(metrics, dict):
            return ()
        return tuple(
            Claim(
                source=self.name,
                name=name,
                kind=kind,
                raw=raw_value(metrics[name]),
                value_us=microseconds(metrics[name], 1000),
                segment=segment,
                includes=includes,
            )
            for name, kind, segment, includes in _CLAIMS
            if metrics.get(name) is not None
        )


VLLM_METRICS = VllmMetrics()
