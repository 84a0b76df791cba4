"""proxy/record.py: the log's schema."""

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.record import (
    SCHEMA_VERSION,
    Conflict,
    EndedBy,
    Evidence,
    Outcome,
    Record,
    Tokens,
    from_json,
    json_schema,
    ms,
    to_json,
)
from tests.records import record

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MILLIS = st.integers(0, 10**12).map(ms)
RAW = (
    st.none()
    | TEXT
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
)


def field_values() -> dict[str, st.SearchStrategy[Any]]:
    """Any value for every field of a record."""
    by_type: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        str | None: st.none() | TEXT,
        int: st.integers(0, 2**53),
        int | None: st.none() | st.integers(0, 2**53),
        bool | None: st.none() | st.booleans(),
        float: MILLIS,
        float | None: st.none() | MILLIS,
        Outcome: st.sampled_from(Outcome),
        EndedBy: st.sampled_from(EndedBy),
        Tokens | None: st.none() | st.builds(Tokens, input=st.none() | st.integers(0, 2**53)),
        dict[str, float | None]: st.dictionaries(TEXT, st.none() | MILLIS, max_size=3),
        dict[str, float]: st.dictionaries(TEXT, MILLIS, max_size=3),
        dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=3),
        dict[str, int]: st.dictionaries(TEXT, st.integers(0, 2**53), max_size=3),
        dict[str, dict[str, float]]: st.dictionaries(
            TEXT, st.dictionaries(TEXT, MILLIS, max_size=2), max_size=2
        ),
        list[str]: st.lists(TEXT, max_size=3),
        list[Evidence]: st.lists(
            st.builds(Evidence, source=TEXT, name=TEXT, kind=TEXT, raw=RAW), max_size=2
        ),
        list[Conflict]: st.lists(
            st.builds(Conflict, source=TEXT, name=TEXT, raw=RAW, reason=TEXT), max_size=2
        ),
    }
    fields = {field.name: by_type[field.type] for field in msgspec.structs.fields(Record)}
    return fields | {"schema": st.just(SCHEMA_VERSION)}


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries(field_values()))
def test_any_record_comes_back(values: dict[str, Any]) -> None:
    """Written as one line, valid by the schema, and the same when read again."""
    one = Record(**values)
    line = to_json(one)
    assert b"\n" not in line
    assert from_json(line) == one
    VALIDATOR.validate(json.loads(line))


@given(st.binary(max_size=60) | TEXT)
def test_anything_else_is_a_value_error(line: bytes | str) -> None:
    """Garbage in, a ValueError out."""
    with pytest.raises(ValueError, match=r"."):
        from_json(line)


def test_unknown_fields_are_ignored() -> None:
    """A newer minor addition stays readable."""
    document = json.loads(to_json(record())) | {"later": {"x": 1}}
    assert from_json(json.dumps(document)) == record()


def test_every_field_is_written() -> None:
    """Unknown is null and not left out, so that every line has the same columns."""
    document = json.loads(to_json(record()))
    assert list(document) == [field.name for field in msgspec.structs.fields(Record)]
    assert document["route"] is None


def test_ms() -> None:
    """Three decimals that read back as the same whole microseconds."""
    assert ms(812_345) == 812.345
    assert all(round(ms(us) * 1000) == us for us in (0, 1, 999, 1001, 10**12 + 1))
