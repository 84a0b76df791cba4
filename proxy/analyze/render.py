"""Records to text: styles, amounts, bars and cards.

Everything works in colour, without it, and in plain ASCII. What a record says comes from requests
and is untrusted: control characters never get out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.account import AccountOf, Segment
from proxy.analyze.verdict import verdict
from proxy.record import Outcome, Record

LETTER = {
    Segment.NETWORK: "N",
    Segment.QUEUE: "Q",
    Segment.PREPROCESSING: "P",
    Segment.INITIALIZATION: "I",
    Segment.GENERATION: "G",
    Segment.PROXY: "X",
    Segment.UNATTRIBUTED: ".",
}
SEGMENT_COLOUR = {
    Segment.NETWORK: "34",
    Segment.QUEUE: "33",
    Segment.PREPROCESSING: "36",
    Segment.INITIALIZATION: "35",
    Segment.GENERATION: "32",
    Segment.PROXY: "37",
    Segment.UNATTRIBUTED: "90",
}
BAND_COLOUR = {"instant": "32", "slight": "32", "noticeable": "33", "needs_work": "31;1"}
_ENDED = {
    Outcome.UPSTREAM_ABORTED: "aborted",
    Outcome.UPSTREAM_UNREACHABLE: "unreach",
    Outcome.INCOMPLETE: "incompl",
    Outcome.CLIENT_DISCONNECT: "left",
    Outcome.TIMEOUT: "timeout",
    Outcome.BAD_REQUEST: "refused",
    Outcome.PROXY_ERROR: "proxyerr",
    Outcome.PROXY_SHUTDOWN: "shutdown",
}
LEAST_SHOWN_MS = 0.05
_COVERS_IN_WORDS: dict[str, str] = {
    AccountOf.FIRST_TOKEN: "TTFT",
    AccountOf.RESPONSE: "complete response",
    AccountOf.CUT: "cut off after",
}


@dataclass(frozen=True, slots=True)
class Style:
    """What the output can show."""

    color: bool = False
    unicode: bool = False

    def paint(self, text: str, code: str) -> str:
        """`text` in the colour of an SGR code (ECMA-48), where there is colour."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and code and text else text

    @property
    def at_most(self) -> str:
        return "≤" if self.unicode else "<="

    @property
    def at_least(self) -> str:
        return "≥" if self.unicode else ">="


PLAIN = Style()


def style_of(choice: str, *, terminal: bool, encoding: str | None, env: Mapping[str, str]) -> Style:
    """What a stream can show; `choice` is auto, always or never and concerns colour.

    auto is a terminal without `NO_COLOR` (no-color.org) and without TERM=dumb.
    """
    auto = terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    color = auto if choice == "auto" else choice == "always"
    try:
        "≤█…".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Style(color=color)
    return Style(color=color, unicode=True)


def amount(
    record: Record, segment: Segment, style: Style, least: float = LEAST_SHOWN_MS
) -> str | None:
    """Milliseconds of a segment, with a sign for what is only a bound; None below `least`."""
    value = record.segments_ms.get(segment.value)
    bounds = record.bounds_ms.get(segment.value, {})
    upper = bounds.get("upper")
    if value is None or max(value, upper or 0.0) < least:
        return None
    if not record.grades.get(segment.value, "").startswith("inferred"):
        return millis(value)
    if upper is not None and bounds.get("estimate", upper) >= upper > bounds.get("lower", 0.0):
        return style.at_most + millis(upper)
    if "estimate" in bounds:
        return "~" + millis(value)
    return (style.at_least if "lower" in bounds else "~") + millis(value)


def card(record: Record, *, width: int = 80, color: bool, unicode: bool) -> str:
    """The account of one record: a title, a bar, one line per segment, one sentence."""
    style = Style(color=color, unicode=unicode)
    lines = [_title(record, width, style)]
    if record.account_ms > 0:
        lines.append(_total(record, style))
        lines.append("  " + bar(record, width - 4, color=color, unicode=unicode))
        lines += [
            line for segment in Segment if (line := _segment_line(record, segment, style, width))
        ]
        lines += _not_known(record, width)
    if record.flags:
        lines += [f"  {line}" for line in wrapped("flags: " + ", ".join(record.flags), width - 2)]
    lines += [f"  {style.paint(line, '1')}" for line in wrapped(verdict(record), width - 2)]
    return "\n".join(lines)


def bar(record: Record, width: int, *, color: bool = False, unicode: bool = False) -> str:
    """The account as `width` cells: one letter per segment, blocks where there is colour.

    Every segment that took part gets at least one cell; the rest is shared out by largest
    remainder.
    """
    taken = {
        segment: value
        for segment in Segment
        if (value := record.segments_ms.get(segment.value) or 0) > 0
    }
    cells = _shares(list(taken.values()), width)
    style = Style(color=color, unicode=unicode)
    return "".join(
        style.paint(_glyph(segment, style) * count, SEGMENT_COLOUR[segment])
        for segment, count in zip(taken, cells, strict=True)
    )


def _shares(values: list[float], cells: int) -> list[int]:
    total = sum(values)
    if not values or total <= 0:
        return []
    exact = [value / total * cells for value in values]
    counts = [max(1, int(share)) for share in exact]
    by_remainder = sorted(range(len(values)), key=lambda i: exact[i] - counts[i], reverse=True)
    for index in by_remainder:
        if sum(counts) < cells:
            counts[index] += 1
    while sum(counts) > cells and max(counts) > 1:
        counts[counts.index(max(counts))] -= 1
    return counts


def _glyph(segment: Segment, style: Style) -> str:
    if not (style.color and style.unicode):
        return LETTER[segment]
    return "░" if segment is Segment.UNATTRIBUTED else "█"


def _title(record: Record, width: int, style: Style) -> str:
    status = style.paint(status_word(record), status_colour(record))
    what = f"{record.method or '?'} {record.path or '?'}"
    who = [record.model or "", record.client or "", record.label or ""]
    text = "  ".join(clean(part) for part in [what, *who] if part)
    room = width - len(status_word(record)) - 2
    return f"{status}  {shorten(text, room, style)}"


def _total(record: Record, style: Style) -> str:
    code = BAND_COLOUR.get(record.band or "", "")
    name = _COVERS_IN_WORDS.get(record.account_of, "account")
    text = style.paint(f"{name} {record.account_ms:.1f} ms", code)
    if record.band:
        text += f" ({record.band.replace('_', ' ')})"
    if record.tpot_ms is not None:
        text += f", then {record.tpot_ms:.1f} ms per token"
    return "  " + text


def _segment_line(record: Record, segment: Segment, style: Style, width: int) -> str | None:
    shown = amount(record, segment, style)
    if shown is None:
        return None
    value = record.segments_ms.get(segment.value) or 0.0
    sign = "".join(letter for letter in shown if letter not in "0123456789.")
    upper = record.bounds_ms.get(segment.value, {}).get("upper")
    number = f"{sign}{upper if sign == style.at_most and upper is not None else value:.1f}"
    share = f"{100 * value / record.account_ms:.0f} %"
    mark = style.paint(_glyph(segment, style), SEGMENT_COLOUR[segment])
    origin = clean(record.grades.get(segment.value, ""))
    if segment is Segment.UNATTRIBUTED:
        origin = "what nobody accounts for"
    line = f"{segment.value:24}{number:>10} ms {share:>6}   {origin}"
    return f"  {mark} {shorten(line, width - 4, style)}"


def _not_known(record: Record, width: int) -> list[str]:
    """The segments that nobody can know, by reason."""
    by_reason: dict[str, list[str]] = {}
    for segment in Segment:
        if record.segments_ms.get(segment.value, 0.0) is None:
            reason = record.nulls.get(segment.value, "no reason given")
            by_reason.setdefault(reason.replace("_", " "), []).append(segment.value)
    if not by_reason:
        return []
    groups = (f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
    return [f"  {line}" for line in wrapped("not known: " + "; ".join(groups), width - 2)]


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` characters, broken at spaces."""
    lines = [""]
    for word in clean(text).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def clean(text: str) -> str:
    """`text` without anything that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shorten(text: str, most: int, style: Style) -> str:
    """`text`, cleaned, in at most `most` characters."""
    text = clean(text)
    if len(text) <= most:
        return text
    dots = "…" if style.unicode else ".."
    return text[: max(0, most - len(dots))] + dots


def millis(value: float) -> str:
    """Milliseconds with as many digits as are worth reading."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def status_word(record: Record) -> str:
    """The status, or a short word for how else the request ended."""
    if record.outcome in (Outcome.OK, Outcome.UPSTREAM_ERROR, Outcome.REDIRECT):
        return str(record.status) if record.status is not None else "ok"
    if record.outcome is Outcome.STREAM_ERROR:
        return f"{record.status}+err"
    return _ENDED.get(record.outcome, record.outcome.value)


def status_colour(record: Record) -> str:
    """The SGR code of how the request ended."""
    if record.outcome is Outcome.OK:
        return "32"
    return "33" if record.outcome in (Outcome.CLIENT_DISCONNECT, Outcome.REDIRECT) else "31"
