"""Server-Timing in all its forms."""

import pytest

from proxy.account import ClaimKind
from proxy.evidence import SERVER_TIMING

LUMP, CONTEXT = ClaimKind.LUMP, ClaimKind.CONTEXT
Said = tuple[str, ClaimKind, object, int | None]


def claims(*lines: bytes) -> list[Said]:
    """Name, kind, raw and µs of each claim."""
    headers = [(b"Server-Timing", line) for line in lines]
    return [(c.name, c.kind, c.raw, c.value_us) for c in SERVER_TIMING.from_headers(headers)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b";", []),
        (b",;;,=", []),
        (b"gfet4t7; dur=530", [("gfet4t7", LUMP, "530", 530_000)]),
        (b"inner; dur=800", [("inner", LUMP, "800", 800_000)]),
        (b"x-originResponse;dur=700", [("x-originResponse", LUMP, "700", 700_000)]),
        (b"X-OriginResponse;DUR=700", [("X-OriginResponse", LUMP, "700", 700_000)]),
        (b"x-originResponse;dur=", [("x-originResponse", LUMP, "", None)]),
        (
            b"cdn-cache;desc=MISS, edge;dur=4, origin;dur=500",
            [("edge", LUMP, "4", 4_000), ("origin", LUMP, "500", 500_000)],
        ),
        (b"total;dur=123.4567", [("total", LUMP, "123.4567", 123_457)]),
        (b"queue;dur=12", [("queue", CONTEXT, "12", 12_000)]),
        (b'db;desc="a, b; dur=7";dur=53', [("db", CONTEXT, "53", 53_000)]),
        (b'db;dur="53.2"', [("db", CONTEXT, "53.2", 53_200)]),
        (b'db;dur=""', [("db", CONTEXT, "", None)]),
        (b"db;dur=1;dur=2", [("db", CONTEXT, "1", 1_000)]),
        (b"db ; dur = 53 ; desc=x", [("db", CONTEXT, "53", 53_000)]),
        (b"db;dur=fast", [("db", CONTEXT, "fast", None)]),
        (b"db;dur=-1", [("db", CONTEXT, "-1", None)]),
        (b"db;dur", [("db", CONTEXT, "", None)]),
        (b"miss", []),
        (b"cache;desc=HIT", []),
        (b"", []),
        (b",,;dur=1, ;", []),
        (b'db;desc="unclosed, total;dur=1', []),
        (b'db;desc="a\\"b, c";dur=1', [("db", CONTEXT, "1", 1_000)]),
    ],
)
def test_one_line(line: bytes, expected: list[Said]) -> None:
    """Totals are lumps, other durations context; no duration, no claim."""
    assert claims(line) == expected


def test_several_lines() -> None:
    """In order."""
    assert [name for name, *_ in claims(b"edge;dur=1", b"origin;dur=2,a;dur=3")] == [
        "edge",
        "origin",
        "a",
    ]


def test_a_long_header_is_bounded() -> None:
    """Of thousands of metrics a few are read."""
    assert len(claims(*[b"a;dur=1," * 10_000] * 3)) == 32


def test_unbalanced_quotes_are_read_in_linear_steps() -> None:
    """A header full of quotes and backslashes is only a bad header."""
    assert claims(b'a;desc="' + b'\\"' * 2000, b'"' * 4000, b'a="\\' * 1000) == []
