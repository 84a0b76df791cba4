"""Reading durations: parse, finite, not negative, of a known unit, or no value at all."""

import math
import re

from proxy.evidence._api import RawHeaders

RAW_LIMIT = 64
"""Characters of a raw value that are kept."""

_NUMBER = re.compile(r"\+?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
# Ten years: a longer duration is a mistake.
_LONGEST_US = 315_360_000_000_000
_LARGEST = _LONGEST_US * 1000
_WHOLE_LIMIT = 1 << 53


def microseconds(value: object, unit_us: float) -> int | None:
    """`value` times `unit_us` (the length of its unit in µs), rounded; None when it is no duration.

    Numbers and strings of digits are read; booleans, NaN, infinities, negative numbers and
    anything longer than ten years are not.
    """
    if isinstance(value, str):
        if len(value) > RAW_LIMIT or not _NUMBER.fullmatch(value):
            return None
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _LARGEST:
        return None
    scaled = value * unit_us
    return round(scaled) if scaled <= _LONGEST_US else None


def raw_value(value: object) -> str | int | float | None:
    """`value` as it can be kept: a number, or printable text of at most 64 characters."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and -_WHOLE_LIMIT < value < _WHOLE_LIMIT:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "?" for c in value[:RAW_LIMIT])
    if isinstance(value, int | float):
        return "out of range"
    return "not a number"


def header_texts(headers: RawHeaders, name: bytes) -> list[str]:
    """The values of every header `name` (lower case), surrounding white space removed."""
    return [value.decode("latin-1").strip(" \t") for key, value in headers if key.lower() == name]
