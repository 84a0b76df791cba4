"""The table: one line per request through the proxy."""

from collections.abc import Iterable

from proxy.record import Record
from tests.real.checks import Row

HEADINGS = (
    *("request", "client", "TTFT client", "TTFT record", "diff"),
    *("network", "queue", "preproc", "proxy", "unattr", "TPOT"),
    *("prompt_ms", "TPOT server", "cache_n", "direct TTFT", "same text"),
)
LEGEND = """\
Milliseconds. TTFT and TPOT: time to first token, time per output token after it. diff: client minus
record. In brackets: not streamed, so the time until the complete response.
The parts, network to unattr, add up to the record's TTFT or response. Grades: no sign measured,
r reported by the server, ~ estimated from the socket (inferred:tcp_info), <= upper bound from the
arrival of the response head (inferred:header_arrival), - unknown, with a reason in the record.
prompt_ms, TPOT server (predicted_ms / (predicted_n - 1)), cache_n: the server's own timings, from
the client's copy of the response; - where it sends none. direct TTFT: without the proxy."""

_SIGNS = {"measured": "", "inferred:tcp_info": "~", "inferred:header_arrival": "<="}
_PARTS = ("network_latency", "queue_delay", "preprocessing_time", "proxy_time", "unattributed")


def table(rows: Iterable[Row]) -> str:
    """The table with its legend."""
    lines = [HEADINGS, *(_line(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    shown = []
    for line in lines:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(cells).rstrip())
    return "\n".join([shown[0], "-" * len(shown[0]), *shown[1:], "", LEGEND])


def _line(row: Row) -> tuple[str, ...]:
    ask, record, seen, timings = row.ask, row.record, row.seen, row.seen.timings
    at_client = seen.ttft_ms if ask.stream else seen.total_ms
    difference = None if at_client is None else at_client - record.account_ms
    more = timings.get("predicted_n", 0) - 1
    direct = row.direct
    return (
        ask.name,
        f"{ask.client} {ask.route}",
        _bracketed(at_client, ask.stream),
        _bracketed(record.account_ms, ask.stream),
        _number(difference),
        *(_part(record, part) for part in _PARTS),
        _number(record.tpot_ms),
        _number(timings.get("prompt_ms")),
        _number(timings["predicted_ms"] / more if more > 0 else None),
        f"{timings['cache_n']:.0f}" if "cache_n" in timings else "-",
        _bracketed(direct.ttft_ms if ask.stream else direct.total_ms, ask.stream) if direct else "",
        ("yes" if direct.text == seen.text else "NO") if direct else "",
    )


def _part(record: Record, part: str) -> str:
    value, grade = record.segments_ms[part], record.grades.get(part, "")
    if grade.startswith("reported:"):
        return f"{_number(value)}r"
    return f"{_SIGNS.get(grade, '?') if value is not None else ''}{_number(value)}"


def _bracketed(value: float | None, streamed: bool) -> str:
    return _number(value) if streamed or value is None else f"({_number(value)})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
