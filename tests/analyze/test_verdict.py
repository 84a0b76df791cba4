"""proxy/analyze/verdict.py: one sentence about one record."""

import pytest

from proxy.account import Phase
from proxy.analyze.verdict import verdict
from proxy.record import EndedBy, Outcome, Record
from tests.records import record, segments


def streamed(total: float, **changes: object) -> Record:
    """A streamed answer whose first token came after `total` ms."""
    defaults: dict[str, object] = {
        "ttft_ms": total,
        "account_ms": total,
        "first_content_ms": total,
        "bounds_ms": {},
        "tpot_ms": 20.0,
    }
    return record(**(defaults | changes))


def test_queue() -> None:
    """The largest part is named, with its share and its source."""
    assert verdict(record()) == (
        "640 of the 812 ms to the first token (79 %) went by in the upstream's queue, "
        "as llama.cpp reports."
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("preprocessing", "reading of the prompt (prefill)"),
        ("initialization", "loading the model"),
        ("generation", "generating the first token"),
        ("proxy", "the proxy itself"),
        ("unattributed", "the upstream, which does not say on what"),
    ],
)
def test_each_segment_has_its_words(name: str, says: str) -> None:
    """Whatever is largest is what the sentence is about."""
    text = verdict(streamed(1000.0, segments_ms=segments(**{name: 990.0, "network": 10.0})))
    assert text.startswith("990 of the 1000 ms to the first token (99 %) went ")
    assert says in text


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("upload", "(900 ms) into the client's upload of its request"),
        ("dns", "into resolving the upstream's name"),
        ("tcp", "into connecting to the upstream"),
        ("tls", "into the TLS handshake"),
        ("round_trip", "into the way to the upstream and back"),
        ("new_part", "into new_part"),
    ],
)
def test_network_is_told_apart(part: str, says: str) -> None:
    """Its largest part is named, too."""
    text = verdict(
        streamed(
            1000.0,
            segments_ms=segments(network=990.0, unattributed=10.0),
            network_ms={part: 900.0, "send": 90.0},
        )
    )
    assert says in text


def test_waiting_for_the_pool() -> None:
    """The proxy's own time that went by without a free connection says so."""
    text = verdict(
        streamed(
            1000.0,
            segments_ms=segments(proxy=900.0, unattributed=100.0),
            marks_us={"pool_ready": 890_000},
        )
    )
    assert text.endswith("waiting for a free connection in the proxy's pool.")


def test_an_inferred_value_is_about_right() -> None:
    """And the sentence says so."""
    text = verdict(
        streamed(
            400.0,
            segments_ms=segments(queue=300.0, unattributed=100.0),
            grades={"queue_delay": "inferred:header_arrival"},
        )
    )
    assert text.startswith("About 300 of the 400 ms")


def test_unattributed_time_is_never_given_to_somebody() -> None:
    """An upper bound of the queue is mentioned; without a look at the socket the way there is
    suspected as well; a large named part comes first, and the unexplained rest stays visible."""
    bounded = streamed(
        1000.0,
        segments_ms=segments(queue=0.0, unattributed=1000.0),
        bounds_ms={"queue_delay": {"lower": 0.0, "upper": 700.0}},
        nulls={},
    )
    assert verdict(bounded).endswith("at the upstream, at most 700 ms of them in its queue.")
    blind = streamed(
        1000.0,
        segments_ms=segments(unattributed=1000.0),
        nulls={"network_ms.round_trip": "no_tcp_info"},
    )
    assert verdict(blind).endswith("at the upstream or on the way to it; nobody tells them apart.")
    both = streamed(1000.0, segments_ms=segments(queue=450.0, unattributed=550.0), grades={})
    assert verdict(both) == (
        "450 of the 1000 ms to the first token (45 %) went by in the upstream's queue; "
        "550 ms stay unexplained."
    )


def test_quick() -> None:
    """Below 100 ms nothing was slow, unless it is slow afterwards."""
    assert verdict(streamed(82.0)) == "The first token came after 82 ms: nothing was slow."
    assert verdict(streamed(82.0, tpot_ms=150.4)).endswith("but every further one took 150 ms.")
    assert verdict(streamed(82.0, stalls=1, gap_max_ms=2500.0)).endswith(
        "but then the stream paused for up to 2500 ms."
    )


def test_reasoning_first() -> None:
    """What users wait for is the visible text."""
    assert verdict(streamed(300.0, first_token_kind="reasoning", first_content_ms=5050.0)) == (
        "Reasoning came first: it began after 300 ms, and visible text after 5050 ms."
    )
    assert verdict(streamed(300.0, first_token_kind="reasoning", first_content_ms=None)) == (
        "The model reasoned from 300 ms on and showed no visible text."
    )
    soon = streamed(300.0, first_token_kind="reasoning", first_content_ms=350.0)
    assert "to the first token" in verdict(soon)


def test_not_streamed() -> None:
    """The complete response is accounted for, and called that."""
    whole: dict[str, object] = {"ttft_ms": None, "account_of": "response", "stream": False}
    slow = record(**whole, account_ms=2000.0, segments_ms=segments(unattributed=2000.0), nulls={})
    assert verdict(slow) == (
        "2000 of the 2000 ms to the complete response (100 %) went by at the upstream, "
        "which does not say on what (not streamed)."
    )
    assert verdict(record(**whole, account_ms=30.0)) == (
        "Not streamed; the whole response was here after 30 ms."
    )
    empty = record(ttft_ms=None, account_of="cut", duration_ms=40.0)
    assert verdict(empty) == "The answer held no token; it was complete after 40 ms."


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.OK])
@pytest.mark.parametrize("phase", list(Phase))
def test_every_ending_is_a_sentence(outcome: Outcome, phase: Phase) -> None:
    """Whatever happened, and whenever, it is one sentence with its full stop."""
    ended = record(
        outcome=outcome,
        ended_in=phase.value,
        ended_by=EndedBy.UPSTREAM,
        status=500,
        error="SomeError",
        ttft_ms=None,
        account_of="cut",
        duration_ms=1234.0,
    )
    text = verdict(ended)
    assert text.endswith(".")
    assert text.count(".") == 1
    assert text[0].isupper()
    assert "None" not in text


def test_endings() -> None:
    """What ended it, after how long, doing what."""
    cut: dict[str, object] = {"ttft_ms": None, "account_of": "cut", "duration_ms": 1200.0}
    assert verdict(record(**cut, outcome=Outcome.CLIENT_DISCONNECT, ended_in="wait")) == (
        "The client left after 1200 ms, while waiting for the response head."
    )
    assert (
        verdict(record(**cut, outcome=Outcome.UPSTREAM_ERROR, status=429, error="rate_limit_error"))
        == "The upstream answered with status 429 after 1200 ms: rate_limit_error."
    )
    assert verdict(
        record(**cut, outcome=Outcome.UPSTREAM_UNREACHABLE, ended_in="tcp", error="ConnectError")
    ) == (
        "The upstream could not be reached after 1200 ms, while connecting to the upstream: "
        "ConnectError."
    )
