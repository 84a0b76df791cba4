"""What a person should make of a latency."""

import pytest

from proxy.record import Outcome
from proxy.serve.config import Config, ConfigError
from proxy.serve.judgement import Thresholds


def test_the_bands_follow_the_settings() -> None:
    """A user who wants more, or less, of a model says so."""
    strict = Thresholds(bands_ms=(10, 20, 30))

    assert [strict.band(us) for us in (9_999, 10_000, 20_000, 30_000, 30_001, None)] == [
        "instant",
        "slight",
        "noticeable",
        "noticeable",
        "needs_work",
        None,
    ]


def test_a_failure_is_an_error_however_fast_it_was() -> None:
    """And the slower of the two latencies decides otherwise."""
    judge = Thresholds(ttft_ms=(100, 200), tpot_ms=(10, 20)).level

    assert judge(5_000, 5_000, Outcome.UPSTREAM_ABORTED) == "error"
    assert judge(100_000, 5_000, Outcome.OK) == "warning"
    assert judge(100_000, 20_000, Outcome.OK) == "critical"
    assert judge(None, None, Outcome.CLIENT_DISCONNECT) == "info"


@pytest.mark.parametrize("bands", ["1,2", "3,2,1", "a,b,c", "0,1,2", "1,nan,3", ""])
def test_thresholds_that_make_no_sense_are_refused(bands: str) -> None:
    """With what was expected; an empty setting counts as not given."""
    flags = {"upstream": "http://h", "bands": bands}
    if not bands:
        assert Config.load({**flags, "bands": None}, {"TTFT_BANDS": ""}).bands_ms[0] == 100
        return
    with pytest.raises(ConfigError, match=r"--bands: .*100,300,1000"):
        Config.load(flags, {})
