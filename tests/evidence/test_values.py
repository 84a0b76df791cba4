"""Reading durations: a number of a known unit, or none."""

import math

import pytest

from proxy.evidence._values import header_texts, microseconds, raw_value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (412, 412_000),
        (85.3, 85_300),
        (0, 0),
        ("412", 412_000),
        ("85.3", 85_300),
        (".5", 500),
        ("1e3", 1_000_000),
        ("", None),
        ("12ms", None),
        ("-1", None),
        (-0.001, None),
        ("1_000", None),
        ("nan", None),
        ("inf", None),
        ("١٢", None),
        ("1e999", None),
        ("1" * 65, None),
        (math.nan, None),
        (math.inf, None),
        (10**400, None),
        (1e14, None),
        (True, None),
        (None, None),
        ([12], None),
    ],
)
def test_milliseconds(value: object, expected: int | None) -> None:
    """Rounded to whole µs; what is no duration has no value."""
    assert microseconds(value, 1000) == expected


def test_nanoseconds() -> None:
    """As Ollama counts."""
    assert microseconds(1_500_000_499, 0.001) == 1_500_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (12, 12),
        (1.5, 1.5),
        (True, "true"),
        ("a\nb\x00", "a?b?"),
        ("x" * 99, "x" * 64),
        (10**400, "out of range"),
        (math.inf, "out of range"),
        ({"secret": 1}, "not a number"),
    ],
)
def test_raw_values_are_small_and_printable(value: object, expected: object) -> None:
    """A log line must hold whatever an upstream sends."""
    assert raw_value(value) == expected


def test_header_texts() -> None:
    """Every line of that name, in any case, without the space around it."""
    headers = [(b"X-A", b" 1 "), (b"b", b"2"), (b"x-a", b"\xe9")]

    assert header_texts(headers, b"x-a") == ["1", "é"]
