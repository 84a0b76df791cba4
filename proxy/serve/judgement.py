"""What a person should make of a latency: its band, and the level of its record. Pure."""

from dataclasses import dataclass

from proxy.record import Outcome

BANDS_MS = (100, 300, 1000)
TTFT_MS = (1000, 2000)
TPOT_MS = (100, 200)
_BANDS = ("instant", "slight", "noticeable")
_HARMLESS = (Outcome.OK, Outcome.REDIRECT, Outcome.CLIENT_DISCONNECT)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """All in milliseconds: where the bands of TTFT end, and where warning and critical begin."""

    bands_ms: tuple[float, ...] = BANDS_MS
    ttft_ms: tuple[float, ...] = TTFT_MS
    tpot_ms: tuple[float, ...] = TPOT_MS

    def band(self, ttft_us: int | None) -> str | None:
        """The band of a TTFT: below the first two limits, up to the third, or `needs_work`."""
        if ttft_us is None:
            return None
        for limit_ms, name in zip(self.bands_ms, _BANDS, strict=True):
            if ttft_us < limit_ms * 1000:
                return name
        return "noticeable" if ttft_us == self.bands_ms[-1] * 1000 else "needs_work"

    def level(self, ttft_us: int | None, tpot_us: int | None, outcome: Outcome) -> str:
        """`error` for a failure, else `critical`, `warning` or `info` by the latencies."""
        if outcome not in _HARMLESS:
            return "error"
        for at, name in ((1, "critical"), (0, "warning")):
            slow_start = ttft_us is not None and ttft_us >= self.ttft_ms[at] * 1000
            slow_flow = tpot_us is not None and tpot_us >= self.tpot_ms[at] * 1000
            if slow_start or slow_flow:
                return name
        return "info"
