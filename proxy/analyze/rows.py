"""One aligned line per record, for people who watch requests go by."""

import re
from datetime import datetime, tzinfo

from proxy.account import AccountOf, Phase, Segment
from proxy.analyze.render import (
    BAND_COLOUR,
    LEAST_SHOWN_MS,
    SEGMENT_COLOUR,
    Style,
    amount,
    clean,
    millis,
    shorten,
    status_colour,
    status_word,
)
from proxy.record import Outcome, Record

SHORT = {
    Segment.NETWORK: "net",
    Segment.QUEUE: "queue",
    Segment.PREPROCESSING: "pre",
    Segment.INITIALIZATION: "init",
    Segment.GENERATION: "gen",
    Segment.PROXY: "proxy",
    Segment.UNATTRIBUTED: "unattr",
}
_COVERS: dict[str, str] = {
    AccountOf.FIRST_TOKEN: "ttft",
    AccountOf.RESPONSE: "all",
    AccountOf.CUT: "cut",
}


class Rows:
    """One line per record, in columns that grow to what they have to hold."""

    _LEAST = (8, 3, 5, 0, 5, 9, 5, 7)
    _MOST = (8, 9, 12, 20, 20, 14, 12, 14)
    _RIGHT = (5, 6, 7)

    def __init__(self, style: Style, tz: tzinfo | None = None) -> None:
        self._style = style
        self._tz = tz
        self._widths = list(self._LEAST)

    def fit(self, record: Record) -> tuple[str, ...]:
        """Make room for `record`, which may come later. Returns its cells."""
        cells = self._cells(record)
        self._widths = [
            max(width, len(cell)) for width, cell in zip(self._widths, cells, strict=True)
        ]
        return cells

    def row(self, record: Record) -> str:
        """The line of `record`: when, how it ended, who, what, the account, the tokens."""
        cells = self.fit(record)
        ended, covers = status_colour(record), BAND_COLOUR.get(record.band or "", "")
        parts = []
        for column, (cell, width) in enumerate(zip(cells, self._widths, strict=True)):
            if not width:
                continue
            padded = cell.rjust(width) if column in self._RIGHT else cell.ljust(width)
            if column == 1:
                padded = self._style.paint(padded, ended)
            elif column == 5:
                padded = self._style.paint(padded, covers)
            parts.append(padded)
        return " ".join([*parts, *self._rest(record)]).rstrip()

    def _cells(self, record: Record) -> tuple[str, ...]:
        covers = _COVERS.get(record.account_of, "")
        tokens = record.tokens
        counts = f"{_count(tokens.input)}>{_count(tokens.output)}" if tokens is not None else ""
        tpot = f"{millis(record.tpot_ms)}/tok" if record.tpot_ms is not None else ""
        texts = (
            _clock_time(record.ts, self._tz),
            status_word(record),
            _client(record.client),
            record.label or "",
            record.model or "-",
            f"{covers:4} {millis(record.account_ms):>4}",
            tpot,
            counts,
        )
        return tuple(
            shorten(text, most, self._style) for text, most in zip(texts, self._MOST, strict=True)
        )

    def _rest(self, record: Record) -> list[str]:
        style = self._style
        least = 0.5 if record.account_ms >= 100 else LEAST_SHOWN_MS
        parts = [
            style.paint(f"{SHORT[segment]} {text}", SEGMENT_COLOUR[segment])
            for segment in Segment
            if (text := amount(record, segment, style, least)) is not None
        ]
        if record.outcome is not Outcome.OK and record.ended_in != Phase.DONE:
            parts.append(f"in {clean(record.ended_in)}")
        parts += [clean(flag) for flag in record.flags]
        return parts


def _count(value: int | None) -> str:
    if value is None:
        return "?"
    return str(value) if value < 10_000 else f"{value / 1000:.0f}k"


def _client(name: str | None) -> str:
    """The family without what only says which library it is, to save room."""
    return re.sub("(python-|-python|-code)", "", name or "-")


def _clock_time(ts: str, tz: tzinfo | None) -> str:
    try:
        return f"{datetime.fromisoformat(ts).astimezone(tz):%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "?"
