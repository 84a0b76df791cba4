"""What has to hold between a record, what the client saw, and what the server said.

Pure: values in, complaints out. A complaint is one sentence that names its request.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jsonschema

from proxy.attribution import SLACK_SHARE, SLACK_US
from proxy.evidence.llamacpp import LLAMACPP
from proxy.record import Record, from_json, json_schema
from tests.real.plan import KEY, SLOTS, Ask, Seen
from tests.support import check

NEAR_MS = 100.0
"""How much later than the record a client may see the same thing: its own work, the relay, loopback
and the scheduler. Generous: one core of a small machine is busy with the model."""
NEAR_IN_BURST_MS = 250.0
"""The same when six clients in one process start and read at once."""
ROUNDING_MS = 0.001
DIALECTS = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic_messages",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One request through the proxy, with its direct twin where there is one."""

    ask: Ask
    record: Record
    seen: Seen
    direct: Seen | None = None

    @property
    def queue_ms(self) -> float | None:
        return self.record.segments_ms["queue_delay"]

    @property
    def waited_ms(self) -> float | None:
        """What the client waited for its first token beyond the server's prefill."""
        if self.seen.ttft_ms is None or "prompt_ms" not in self.seen.timings:
            return None
        return self.seen.ttft_ms - self.seen.timings["prompt_ms"]


def read_log(lines: Iterable[bytes]) -> tuple[list[Record], list[str]]:
    """The records of a log, and complaints about lines that are none."""
    schema = jsonschema.Draft202012Validator(json_schema())
    records, complaints = [], []
    for number, line in enumerate(lines, 1):
        try:
            record = from_json(line)
            schema.validate(json.loads(line))
            check(record)
        except (ValueError, jsonschema.ValidationError, AssertionError) as error:
            complaints.append(f"line {number} of the log: {type(error).__name__}: {error}")
        else:
            records.append(record)
    return records, complaints


def of_names(records: Iterable[Record], names: Iterable[str]) -> Iterator[str]:
    """One record per request, no more and no fewer."""
    found, wanted = Counter(str(record.label) for record in records), Counter(names)
    for name in sorted({*found, *wanted}):
        if found[name] != wanted[name]:
            yield f"{name}: {found[name]} records for {wanted[name]} requests"


def of_row(row: Row, *, near_ms: float = NEAR_MS) -> Iterator[str]:
    """Everything that one row alone can show."""
    for complaint in (
        *_answer(row),
        *_first_token(row, near_ms),
        *_server_time(row),
        *_tokens(row),
        *_same_text(row),
    ):
        yield f"{row.ask.name}: {complaint}"


def _answer(row: Row) -> Iterator[str]:
    record, seen = row.record, row.seen
    if seen.error is not None:
        yield f"the client failed: {seen.error}"
    elif not seen.text:
        yield "the client saw no text"
    said = (record.status, record.outcome.value, record.dialect, record.stream)
    wanted = (200, "ok", DIALECTS[row.ask.route], row.ask.stream)
    if said != wanted:
        yield f"the record says {said}, not {wanted}"


def _first_token(row: Row, near_ms: float) -> Iterator[str]:
    record, seen = row.record, row.seen
    if row.ask.stream:
        if record.ttft_ms is None or record.first_token_kind != "text":
            yield f"no first token of text in the record: {record.nulls.get('ttft_ms')}"
        yield from _near("first token", seen.ttft_ms, record.ttft_ms, near_ms)
    else:
        if record.ttft_ms is not None or record.nulls.get("ttft_ms") != "not_streamed":
            yield "a response that was not streamed has a TTFT"
        yield from _near("response", seen.total_ms, record.account_ms, near_ms)
    if seen.first_byte_ms is not None:
        head_ms = record.marks_us.get("response_headers", 0) / 1000
        yield from _near("first byte", seen.first_byte_ms, head_ms, near_ms)


def _near(
    what: str, client_ms: float | None, record_ms: float | None, near_ms: float
) -> Iterator[str]:
    """The client sees everything after the proxy, but not much later."""
    if client_ms is None or record_ms is None:
        yield f"no {what} to compare: client {client_ms}, record {record_ms}"
    elif not 0 <= client_ms - record_ms <= near_ms:
        yield (
            f"{what}: the client says {client_ms:.1f} ms and the record {record_ms:.1f} ms, "
            f"not 0 to {near_ms:.0f} ms less"
        )


def _server_time(row: Row) -> Iterator[str]:
    """What the server reported is in the account as it is; what it did not report is null."""
    record = row.record
    prompt_ms = row.seen.timings.get("prompt_ms")
    found = record.segments_ms["preprocessing_time"]
    if prompt_ms is None:
        if found is not None or record.nulls.get("preprocessing_time") != "not_reported":
            yield f"the server sent no timings, but preprocessing_time is {found}"
        if row.queue_ms is not None or record.nulls.get("queue_delay") != "not_reported":
            yield f"the server sent no timings, but queue_delay is {row.queue_ms}"
        return
    # What exceeds the measured interval by less than the slack is trimmed, and the record says so.
    trimmed = "trimmed:preprocessing_time" in record.flags
    allowed = SLACK_US / 1000 + prompt_ms * SLACK_SHARE if trimmed else ROUNDING_MS
    if found is None or abs(found - prompt_ms) > allowed:
        yield f"preprocessing_time is {found} and the server's prompt_ms {prompt_ms}"
    if record.grades.get("preprocessing_time") != f"reported:{LLAMACPP.name}":
        yield f"preprocessing_time is graded {record.grades.get('preprocessing_time')}"
    if record.nulls.get("first_token_generation") != "inside_prefill":
        yield "first_token_generation is not inside_prefill"
    graded = record.grades.get("queue_delay")
    if row.ask.stream and graded != "inferred:header_arrival":
        yield f"queue_delay is graded {graded}"


def _tokens(row: Row) -> Iterator[str]:
    counted = row.record.tokens.output if row.record.tokens is not None else None
    if counted != row.seen.output_tokens:
        yield f"the record counts {counted} output tokens, the client {row.seen.output_tokens}"


def _same_text(row: Row) -> Iterator[str]:
    """At temperature 0 the proxy makes no difference, if both calls met the server alike."""
    direct, seen = row.direct, row.seen
    if direct is None:
        return
    if direct.error is not None:
        yield f"the direct client failed: {direct.error}"
    elif direct.cached_tokens != seen.cached_tokens:
        yield (
            f"not comparable: {direct.cached_tokens} prompt tokens from the server's cache without "
            f"the proxy, {seen.cached_tokens} through it"
        )
    elif direct.text != seen.text:
        yield f"the text differs: {direct.text!r} without the proxy, {seen.text!r} through it"


def of_queue(alone: Sequence[Row], burst: Sequence[Row], deferred: float) -> Iterator[str]:
    """Requests beyond the number of slots queue, and their records say so; others do not.

    `deferred` is the largest number of waiting requests that the server itself admitted to.
    """
    if not deferred:
        yield "the server deferred no request: nothing queued, so nothing is shown"
    waits = [row for row in burst if row.waited_ms is not None and row.queue_ms is not None]
    if len(waits) != len(burst):
        yield "not every request of the burst has a wait and a queue_delay to compare"
        return
    waits.sort(key=lambda row: row.waited_ms or 0)
    served, queued = waits[:SLOTS], waits[SLOTS:]
    for row in queued:
        if (row.queue_ms or 0) < (row.waited_ms or 0) / 2:
            yield (
                f"{row.ask.name}: the client waited {row.waited_ms:.0f} ms beyond prefill and "
                f"queue_delay says {row.queue_ms:.0f} ms"
            )
    least = min((row.queue_ms or 0 for row in queued), default=0)
    for row in served:
        if (row.queue_ms or 0) > least / 2:
            yield f"{row.ask.name}: had a slot, but queue_delay is {row.queue_ms:.0f} ms"
    for row in alone:
        if row.queue_ms is not None and row.queue_ms > NEAR_MS:
            yield f"{row.ask.name}: was alone, but queue_delay is {row.queue_ms:.0f} ms"


def of_secrets(outputs: Mapping[str, str], rows: Iterable[Row]) -> Iterator[str]:
    """No output of the proxy shows a key, a prompt or an answer."""
    secrets = {"the key": KEY}
    for row in rows:
        secrets[f"the prompt of {row.ask.name}"] = row.ask.prompt[:40]
        if row.seen.text.strip():
            secrets[f"the answer of {row.ask.name}"] = row.seen.text.strip()[:40]
    for where, text in outputs.items():
        for what, secret in secrets.items():
            if secret in text:
                yield f"{where} shows {what}"
