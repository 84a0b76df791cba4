"""llama.cpp's `timings` object: on the last event, on every event when asked, on whole answers.

Source: llama.cpp `tools/server/server-task.cpp`. `prompt_ms` runs from the start of the slot to
the first sampled token, so it holds the generation of the first token and leaves out tokenising
and the wait for a slot. `prompt_n` counts the prompt tokens that were computed, `cache_n` those
that were reused.

Builds since llama.cpp pull request 23884 send the head of a stream when the slot starts, which
bounds the queue. The build is not told, so the claim goes to whoever can check it against the
marks.
"""

from proxy.account import Claim, ClaimKind, Segment
from proxy.evidence._api import RawHeaders
from proxy.evidence._values import microseconds, raw_value


class LlamaCpp:
    """Prefill as a duration, decode time and counts as context."""

    name = "llama.cpp"
    markers: tuple[str, ...] = ("timings",)
    fields: tuple[bytes, ...] = ()

    def from_headers(self, headers: RawHeaders) -> tuple[Claim, ...]:
        """Nothing."""
        return ()

    def from_event(self, document: object) -> tuple[Claim, ...]:
        """The claims of a `timings` object that has `prompt_ms`."""
        timings = document.get("timings") if isinstance(document, dict) else None
        if not isinstance(timings, dict) or "prompt_ms" not in timings:
            return ()
        claims = [
            Claim(
                source=self.name,
                name="prompt_ms",
                kind=ClaimKind.DURATION,
                raw=raw_value(timings["prompt_ms"]),
                value_us=microseconds(timings["prompt_ms"], 1000),
                segment=Segment.PREPROCESSING,
                includes=(Segment.GENERATION,),
            ),
            Claim(
                source=self.name,
                name="head_at_slot_start",
                kind=ClaimKind.QUEUE_ENDS_AT_HEAD,
                raw=None,
                segment=Segment.QUEUE,
            ),
        ]
        for name, unit_us in (("predicted_ms", 1000), ("prompt_n", None), ("cache_n", None)):
            if name in timings:
                value = timings[name]
                claims.append(
                    Claim(
                        source=self.name,
                        name=name,
                        kind=ClaimKind.CONTEXT,
                        raw=raw_value(value),
                        value_us=microseconds(value, unit_us) if unit_us else None,
                    )
                )
        return tuple(claims)


LLAMACPP = LlamaCpp()
