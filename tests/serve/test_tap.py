"""The tap, told as timelines: what is read when, and what the account may say about it."""

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.account import ClaimKind, Mark, Trace
from proxy.dialects import Observation, TokenKind, Usage
from proxy.dialects.openai_chat import OpenAiChat
from proxy.serve.tap import Tap, TapFacts
from tests.dialects.goldens import (
    ANTHROPIC,
    CHAT,
    CHAT_REASONING,
    DONE,
    GOLDENS,
    OLLAMA_CHAT,
    RESPONSES,
    RESPONSES_TOOLS,
    Golden,
    chunk,
    data,
    event,
)

MS = 1_000_000
START = 7_000 * MS
CHAT_PATH, MESSAGES, RESPONSES_PATH = "/v1/chat/completions", "/v1/messages", "/v1/responses"

Script = Iterable[tuple[float, bytes]]


@dataclass(frozen=True)
class Played:
    """What came of a script: the facts, and the marks in ms after the start."""

    facts: TapFacts
    marks: dict[Mark, float]
    tap: Tap

    def ms(self, mark: Mark) -> float | None:
        return self.marks.get(mark)


def play(
    script: Script,
    *,
    path: str = CHAT_PATH,
    method: str = "POST",
    request: bytes = b'{"model":"m","stream":true}',
    request_coding: bytes = b"",
    status: int = 200,
    content_type: bytes = b"text/event-stream",
    coding: bytes = b"",
    headers: tuple[tuple[bytes, bytes], ...] = (),
    trailers: tuple[tuple[bytes, bytes], ...] = (),
) -> Played:
    """One request; each step of the script is a read, at ms after the start."""
    trace = Trace(lambda: 0, START)
    encoded = [(b"Content-Encoding", request_coding)] if request_coding else []
    tap = Tap(method, path, trace=trace, request_headers=encoded)
    tap.request_body(request)
    tap.request_complete()
    head = [(b"Content-Type", content_type), *headers]
    if coding:
        head.append((b"Content-Encoding", coding))
    tap.response_head(status, head)
    for at, read in script:
        tap.feed(read, START + int(at * MS))
    tap.trailers(trailers)
    tap.close()
    return Played(tap.facts(), {m: (at - START) / MS for m, at in trace.marks.items()}, tap)


def wire(*steps: tuple[bytes, object]) -> bytes:
    return b"".join(step for step, _ in steps)


def text(content: str = "x") -> bytes:
    return chunk(json.dumps({"content": content}))[0]


ROLE = chunk('{"role":"assistant","content":""}')[0]
STOP = chunk("{}", finish='"stop"')[0]
END = DONE[0]


OVERLOADED = b'data: {"type":"error","error":{"type":"overloaded_error"}}\n\n'


def usage(output: int, reasoning: int = 0) -> bytes:
    details = json.dumps({"reasoning_tokens": reasoning})
    return data(
        '{"choices":[],"usage":{"prompt_tokens":9,'
        f'"completion_tokens":{output},"completion_tokens_details":{details}}}}}'
    )[0]


class TestFirstToken:
    def test_a_role_is_an_event_and_no_token(self) -> None:
        """The stream opens long before the model speaks."""
        played = play([(20, ROLE), (900, text("Hi")), (930, STOP), (931, END)])

        assert played.marks == {
            Mark.FIRST_EVENT: 20,
            Mark.FIRST_TOKEN: 900,
            Mark.FIRST_CONTENT: 900,
            Mark.LAST_TOKEN: 900,
            Mark.TERMINAL_EVENT: 931,
        }
        assert played.facts.first_token_kind is TokenKind.TEXT
        assert played.facts.nulls == {"tokens": "no_usage"}

    def test_anthropic_opens_with_structure(self) -> None:
        """message_start, content_block_start and ping come early."""
        steps = [wire for wire, _ in ANTHROPIC.steps]
        played = play(enumerate(steps), path=MESSAGES)

        assert played.ms(Mark.FIRST_EVENT) == 0
        assert played.ms(Mark.FIRST_TOKEN) == 3
        assert played.ms(Mark.FIRST_CONTENT) == 7
        assert played.ms(Mark.LAST_TOKEN) == 11
        assert played.ms(Mark.TERMINAL_EVENT) == 14
        assert played.facts.first_token_kind is TokenKind.REASONING

    def test_responses_opens_with_structure(self) -> None:
        """created, in_progress, output_item.added, content_part.added."""
        steps = [wire for wire, _ in RESPONSES.steps]
        played = play(enumerate(steps), path=RESPONSES_PATH)

        assert played.ms(Mark.FIRST_TOKEN) == 4
        assert played.ms(Mark.FIRST_CONTENT) == 11
        assert played.ms(Mark.LAST_TOKEN) == 11, "later events only repeat"
        assert played.facts.token_events == 2

    def test_structure_alone_is_no_token(self) -> None:
        """No sample is better than a false one."""
        played = play([(20, ROLE), (30, STOP), (31, END)])

        assert played.ms(Mark.FIRST_TOKEN) is None
        assert played.facts.nulls["ttft_ms"] == "no_token"
        assert played.facts.terminal

    @pytest.mark.parametrize("content", ["null", '""', None])
    def test_reasoning_is_a_token_and_no_content(self, content: str | None) -> None:
        """The same whether content is null, empty or missing."""
        tail = "" if content is None else f',"content":{content}'
        thought = chunk(f'{{"reasoning_content":"x"{tail}}}')[0]
        played = play([(300, thought), (350, thought), (5050, text("A")), (5051, END)])

        assert played.ms(Mark.FIRST_TOKEN) == 300
        assert played.ms(Mark.FIRST_CONTENT) == 5050
        assert played.facts.first_token_kind is TokenKind.REASONING

    def test_cut_while_thinking(self) -> None:
        """A first token, and no answer text, with a reason."""
        thought = chunk('{"reasoning":"x","content":null}')[0]
        played = play([(300, thought), (5000, chunk("{}", finish='"length"')[0]), (5001, END)])

        assert played.ms(Mark.FIRST_CONTENT) is None
        assert played.facts.nulls["first_content_ms"] == "no_content"

    def test_a_tool_call_counts_from_its_name(self) -> None:
        """Most agent turns never say anything else."""
        call = '{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}'
        played = play([(20, ROLE), (400, chunk(call)[0]), (500, END)])

        assert played.ms(Mark.FIRST_TOKEN) == 400
        assert played.facts.first_token_kind is TokenKind.TOOL_CALL
        assert played.facts.error is None

    def test_responses_tool_calls_count_from_their_name(self) -> None:
        """As in Chat Completions."""
        steps = [wire for wire, _ in RESPONSES_TOOLS.steps]
        played = play(enumerate(steps), path=RESPONSES_PATH)

        assert played.ms(Mark.FIRST_TOKEN) == 1
        assert (played.facts.terminal, played.facts.error) == (True, None)

    def test_responses_without_deltas(self) -> None:
        """What elsewhere repeats is news when nothing came before, once."""
        item = '{"type":"message","content":[{"type":"output_text","text":"Hi"}]}'
        played = play(
            [
                (5, event('{"type":"response.created","response":{}}')[0]),
                (70, event(f'{{"type":"response.output_item.done","item":{item}}}')[0]),
                (71, event(f'{{"type":"response.completed","response":{{"output":[{item}]}}}}')[0]),
            ],
            path=RESPONSES_PATH,
        )

        assert (played.ms(Mark.FIRST_TOKEN), played.ms(Mark.LAST_TOKEN)) == (70, 70)
        assert played.facts.token_events == 1

    def test_a_later_chunk_moves_nothing(self) -> None:
        """A whole answer in one chunk; usage much later."""
        whole = chunk('{"role":"assistant","content":"Hi"}', finish='"stop"')[0]
        played = play([(300, whole), (900, usage(1)), (901, END)])

        assert (played.ms(Mark.FIRST_TOKEN), played.ms(Mark.LAST_TOKEN)) == (300, 300)
        assert played.facts.token_events == 1
        assert played.facts.gaps is None

    def test_the_stamp_is_that_of_the_completing_read(self) -> None:
        """An event that comes in three reads is there with the third."""
        whole = text("Hi")
        played = play([(10, whole[:5]), (20, whole[5:-1]), (30, whole[-1:])])

        assert played.ms(Mark.FIRST_TOKEN) == 30
        assert played.facts.chunks == 3

    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
    def test_line_ends_do_not_move_it(self, end: bytes) -> None:
        """A bare CR is not held back for a possible LF."""
        steps = [ROLE, text("a"), text("b"), END]
        played = play((n * 100, step.replace(b"\n", end)) for n, step in enumerate(steps))

        assert played.ms(Mark.FIRST_TOKEN) == 100
        assert played.ms(Mark.LAST_TOKEN) == 200
        assert played.ms(Mark.TERMINAL_EVENT) == 300
        assert played.facts.events == 4

    def test_keep_alives(self) -> None:
        """Comments, pings and empty data are counted apart and are no tokens."""
        comments = [(at, b": OPENROUTER PROCESSING\n\n") for at in range(100, 2000, 200)]
        played = play(
            [
                *comments,
                (1900, b":\n"),
                (1910, b"event: ping\ndata: {}\n\n"),
                (1920, b"data:\n\n"),
                (1930, b"retry: 1000\n\nid: 7\n\n"),
                (2000, text("Hi")),
            ]
        )

        assert played.ms(Mark.FIRST_EVENT) == 1910
        assert played.ms(Mark.FIRST_TOKEN) == 2000
        assert (played.facts.comments, played.facts.events) == (11, 3)
        assert played.facts.flags == ()

    def test_ndjson(self) -> None:
        """Ollama's native stream, with its evidence."""
        steps = [wire for wire, _ in OLLAMA_CHAT.steps]
        played = play(
            enumerate(steps), path="/api/chat", content_type=b"application/x-ndjson", request=b"{}"
        )

        assert (played.ms(Mark.FIRST_TOKEN), played.ms(Mark.FIRST_CONTENT)) == (0, 1)
        assert played.ms(Mark.TERMINAL_EVENT) == 3
        assert played.facts.usage == Usage(input=300, output=40)
        assert "load_duration" in {claim.name for claim in played.facts.claims}
        assert played.facts.model == "qwen"

    def test_ndjson_without_a_last_line_end(self) -> None:
        """Complete with the read that brought its last byte, not with the end."""
        played = play(
            [(10, b'{"response":"a","done":false}\n'), (20, b'{"response":"","done":true}')],
            path="/api/generate",
            content_type=b"application/x-ndjson",
        )

        assert played.ms(Mark.TERMINAL_EVENT) == 20


class TestCounting:
    def test_tokens_and_chunks_are_not_the_same(self) -> None:
        """Ten chunks 100 ms apart, forty tokens: gaps are called gaps."""
        script = [(1000 + 100 * n, text()) for n in range(10)]
        played = play([*script, (1901, usage(40)), (1902, END)])
        facts = played.facts

        assert facts.usage == Usage(input=9, output=40, reasoning=0)
        assert (facts.token_events, facts.first_chunk_tokens) == (10, 1)
        assert facts.gaps is not None
        assert facts.gaps.max_us == 100_000
        assert abs(facts.gaps.p50_us - 100_000) < 1_000
        assert facts.response_bytes == sum(len(step) for _, step in script) + len(usage(40) + END)

    def test_a_buffering_hop_shows_as_events_per_read(self) -> None:
        """Fifty events in two reads: one gap."""
        played = play([(600, text() * 25), (1000, text() * 25)])

        assert played.facts.events_per_read == 25
        assert played.facts.token_events == 50
        assert played.facts.gaps is not None
        assert played.facts.gaps.max_us == 400_000

    def test_keep_alives_do_not_shorten_the_gaps_between_tokens(self) -> None:
        """A gap runs from token to token."""
        played = play([(0, text()), (1500, b": ping\n\n"), (3000, text())])

        assert played.facts.gaps is not None
        assert (played.facts.gaps.max_us, played.facts.gaps.stalls) == (3_000_000, 1)

    def test_no_usage(self) -> None:
        """Chunks are not counted as tokens."""
        played = play([(1, text()), (2, text()), (3, END)])

        assert played.facts.usage is None
        assert played.facts.nulls["tokens"] == "no_usage"

    def test_usage_comes_in_pieces(self) -> None:
        """Anthropic states the prompt first and the answer last."""
        played = play([(1, ANTHROPIC.body)], path=MESSAGES)

        assert played.facts.usage == ANTHROPIC.usage

    def test_a_stream_that_is_cut_has_no_output_count(self) -> None:
        """What `message_start` says about output is a placeholder."""
        played = play([(1, wire(*ANTHROPIC.steps[:8]))], path=MESSAGES)

        assert played.facts.usage == Usage(input=2530, cached=2000)

    def test_hidden_reasoning(self) -> None:
        """Reasoning tokens in the usage, none in the stream."""
        played = play([(6000, text()), (7000, text()), (7001, usage(650, 600)), (7002, END)])

        assert played.facts.reasoning_hidden

    def test_streamed_reasoning(self) -> None:
        """It was there to see."""
        thought = chunk('{"reasoning":"x"}')[0]
        played = play([(300, thought), (700, text()), (701, usage(650, 600)), (702, END)])

        assert not played.facts.reasoning_hidden

    def test_a_count_with_the_first_token_is_used(self) -> None:
        """Servers that state usage with every chunk tell how many tokens came first."""

        def counted(count: int) -> bytes:
            return data(
                '{"choices":[{"delta":{"content":"abc"}}],"usage":{"completion_tokens":'
                f"{count}}}}}"
            )[0]

        assert play([(1, counted(3)), (9, counted(6))]).facts.first_chunk_tokens == 3
        assert play([(1, counted(3) + counted(5)), (9, counted(6))]).facts.first_chunk_tokens == 5
        assert play([(1, text()), (9, counted(6))]).facts.first_chunk_tokens == 1

    def test_empty_choices(self) -> None:
        """Azure's first chunk, and null and missing choices."""
        played = play(
            [
                (1, data('{"id":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}')[0]),
                (2, data('{"choices":null}')[0] + data("{}")[0] + data('{"choices":[{}]}')[0]),
                (3, text()),
                (4, usage(3) + END),
            ]
        )

        assert (played.ms(Mark.FIRST_EVENT), played.ms(Mark.FIRST_TOKEN)) == (1, 3)
        assert played.facts.flags == ()


class TestErrors:
    @pytest.mark.parametrize(
        ("path", "script", "error", "tokens"),
        [
            pytest.param(
                MESSAGES,
                [(1, b"event: error\n" + OVERLOADED)],
                "overloaded_error",
                0,
                id="first event",
            ),
            pytest.param(
                MESSAGES,
                [
                    (1, wire(*ANTHROPIC.steps[:4])),
                    (9, b'event: error\ndata: {"type":"error","error":{"type":"api_error"}}\n\n'),
                ],
                "api_error",
                1,
                id="after deltas",
            ),
            pytest.param(
                MESSAGES,
                [
                    (1, b'event: ping\ndata: {"type":"ping"}\n\n' * 2),
                    (9, b'data: {"type":"error","error":{"type":"api_error"}}\n\n'),
                ],
                "api_error",
                0,
                id="without an event line",
            ),
            pytest.param(
                CHAT_PATH,
                [(1, b'data: {"error":{"message":"quota sk-secret"}}\n\n'), (2, END)],
                "error",
                0,
                id="chat, then done",
            ),
            pytest.param(
                RESPONSES_PATH,
                [(1, event('{"type":"response.failed","response":{"error":{"code":"x"}}}')[0])],
                "x",
                0,
                id="response.failed",
            ),
        ],
    )
    def test_inside_a_success(self, path: str, script: Script, error: str, tokens: int) -> None:
        """The type, and what came before; never the message."""
        facts = play(script, path=path).facts

        assert (facts.error, facts.error_type, facts.token_events) == (error, None, tokens)
        assert "secret" not in repr(facts)

    def test_response_incomplete_is_an_ordinary_end(self) -> None:
        """A limit was reached; nothing failed."""
        end = event(
            '{"type":"response.incomplete","response":{"incomplete_details":'
            '{"reason":"max_output_tokens"},"error":null}}'
        )[0]
        facts = play([(1, end)], path=RESPONSES_PATH).facts

        assert (facts.error, facts.terminal) == (None, True)

    @pytest.mark.parametrize("status", [400, 401, 429, 529])
    def test_error_status(self, status: int) -> None:
        """Type from the JSON; the request's stream flag is no mismatch then."""
        body = b'{"type":"error","error":{"type":"rate_limit_error","message":"m sk-secret"}}'
        played = play([(5, body)], status=status, content_type=b"application/json", path=MESSAGES)

        assert (played.facts.error, played.facts.error_type) == (None, "rate_limit_error")
        assert (played.facts.stream, played.facts.flags) == (False, ())
        assert played.marks == {}
        assert "secret" not in repr(played.facts)

    def test_error_page(self) -> None:
        """HTML has no type."""
        facts = play([(5, b"<html>")], status=502, content_type=b"text/html").facts

        assert (facts.error_type, facts.stream, facts.chunks) == (None, False, 1)

    def test_error_of_an_unknown_call(self) -> None:
        """Also where the dialect is not known."""
        body = b'{"error":{"code":"not_found"}}'
        facts = play([(5, body)], status=404, content_type=b"application/json", path="/v1/x").facts

        assert (facts.dialect, facts.error_type) == ("opaque", "not_found")

    @pytest.mark.parametrize(
        ("steps", "finished", "terminal"),
        [
            ([text(), text()], False, False),
            ([text(), STOP], True, False),
            ([text(), STOP, END], True, True),
        ],
    )
    def test_how_it_ended(self, steps: list[bytes], finished: bool, terminal: bool) -> None:
        """A finish reason is not the end of the stream, and no end is told apart."""
        facts = play(enumerate(steps)).facts

        assert (facts.finished, facts.terminal) == (finished, terminal)

    def test_terminal_is_known_at_once(self) -> None:
        """The relay asks when a client leaves."""
        tap = Tap("POST", CHAT_PATH, trace=Trace(lambda: 0, 0), request_headers=())
        tap.response_head(200, [(b"content-type", b"text/event-stream")])
        tap.feed(text(), 1)
        assert not tap.terminal
        tap.feed(END, 2)
        assert tap.terminal


class TestModes:
    def test_whole_response(self) -> None:
        """stream:true answered with JSON: counts and total time, no TTFT, and a flag."""
        body = {
            "model": "m2",
            "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2},
            "timings": {"prompt_ms": 5, "predicted_ms": 7},
        }
        played = play([(50, json.dumps(body).encode())], content_type=b"application/json")
        facts = played.facts

        assert played.marks == {}
        assert (facts.stream, facts.nulls) == (False, {"ttft_ms": "not_streamed"})
        assert (facts.usage, facts.finished) == (Usage(input=9, output=2), True)
        assert facts.flags == ("stream_mismatch",)
        assert [claim.name for claim in facts.claims] == ["prompt_ms", "predicted_ms"]

    def test_whole_response_as_asked_for(self) -> None:
        """No flag; the response's model stands in when the request names none."""
        played = play(
            [(50, b'{"model":"m2","choices":[]}')],
            content_type=b"application/json",
            request=b"{}",
        )

        assert (played.facts.model, played.facts.flags) == ("m2", ())

    def test_stream_that_was_not_asked_for(self) -> None:
        """The reverse, with nothing but pings."""
        played = play(
            [(1, b": ping\n\n"), (2, b": ping\n\n")],
            request=b'{"model":"m","stream":false}',
            content_type=b"TEXT/event-stream;charset=UTF-8",
        )

        assert played.facts.stream is True
        assert played.facts.flags == ("stream_mismatch",)
        assert played.facts.nulls["ttft_ms"] == "no_token"

    def test_stream_without_a_content_type(self) -> None:
        """The body tells, and the tap says so."""
        played = play([(1, ROLE), (9, text())], content_type=b"")

        assert (played.facts.stream, played.ms(Mark.FIRST_TOKEN)) == (True, 9)
        assert played.facts.flags == ("mislabelled_response",)

    def test_unknown_traffic_is_counted(self) -> None:
        """No model call, no token, no copy of the upload."""
        played = play(
            [(1, b'data: {"candidates":[]}\n\n'), (2, b": x\n\n")], path="/v1beta/x:streamGenerate"
        )
        facts = played.facts

        assert (facts.dialect, facts.is_model_call) == ("opaque", False)
        assert (facts.events, facts.comments, facts.chunks) == (1, 1, 2)
        assert facts.nulls == {"model": "opaque", "ttft_ms": "opaque", "tokens": "opaque"}
        assert facts.flags == ()

    def test_a_model_list_is_not_kept(self) -> None:
        """Large answers to other calls cost nothing."""
        played = play(
            [(1, b"{" + b" " * 100_000)],
            path="/v1/models",
            method="GET",
            content_type=b"application/json",
        )

        assert (played.facts.chunks, played.facts.response_bytes) == (1, 100_001)

    def test_no_response(self) -> None:
        """Nothing is known, and that is said."""
        tap = Tap("POST", CHAT_PATH, trace=Trace(lambda: 0, 0), request_headers=())
        tap.close()
        facts = tap.facts()

        assert (facts.stream, facts.readable) == (None, False)
        assert facts.nulls == {
            "model": "incomplete_request",
            "ttft_ms": "no_response",
            "tokens": "no_response",
        }


class TestCodings:
    PIECES = (ROLE, text("grüß"), text(" dich"), usage(3), END)

    @staticmethod
    def packed(coding: bytes) -> list[bytes]:
        """Each event flushed on its own."""
        pieces = TestCodings.PIECES
        if coding == b"br":
            br = brotli.Compressor()
            return [br.process(piece) + br.flush() for piece in pieces]
        if coding == b"zstd":
            zstd = zstandard.ZstdCompressor().compressobj()
            flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK
            return [zstd.compress(piece) + zstd.flush(flush) for piece in pieces]
        deflate = zlib.compressobj(wbits=31)
        return [deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]

    @pytest.mark.parametrize("coding", [b"gzip", b"br", b"zstd"])
    def test_the_same_as_plain(self, coding: bytes) -> None:
        """Marks, tokens and usage, though the end of the coding is missing."""
        plain = play((n * 100, piece) for n, piece in enumerate(self.PIECES))
        played = play(
            ((n * 100, piece) for n, piece in enumerate(self.packed(coding))), coding=coding
        )

        assert played.marks == plain.marks
        assert played.facts.usage == plain.facts.usage
        assert played.facts.response_encoding == coding.decode()
        assert played.facts.readable

    def test_unsupported(self) -> None:
        """No marks and no zeros."""
        played = play([(100, b"\x1f\x9d\x90")], coding=b"compress")

        assert played.marks == {}
        assert played.facts.nulls["ttft_ms"] == "unsupported_encoding"
        assert played.facts.nulls["tokens"] == "unsupported_encoding"
        assert played.facts.flags == ("undecodable_response",)
        assert (played.facts.readable, played.facts.stream) == (False, True)

    def test_corrupt_in_mid_stream(self) -> None:
        """What was seen before stays; what comes after is unknown."""
        packed = self.packed(b"gzip")
        played = play(
            [(0, packed[0]), (100, packed[1]), (200, b"\xff" * 50), (300, packed[4])],
            coding=b"gzip",
        )

        assert played.ms(Mark.FIRST_TOKEN) == 100
        assert played.facts.nulls["tokens"] == "undecodable_response"
        assert played.facts.chunks == 4
        assert not played.facts.readable

    def test_compressed_document(self) -> None:
        """A whole answer, and an error."""
        body = gzip.compress(b'{"error":{"type":"not_found_error"}}')
        played = play([(5, body)], status=404, content_type=b"application/json", coding=b"gzip")

        assert played.facts.error_type == "not_found_error"

    def test_compressed_request(self) -> None:
        """As Codex sends it."""
        played = play(
            [],
            request=zstandard.compress(b'{"model":"gpt-x","stream":true}'),
            request_coding=b"zstd",
        )

        assert (played.facts.model, played.facts.request_encoding) == ("gpt-x", "zstd")

    @pytest.mark.parametrize(
        ("request_body", "coding", "why", "flags"),
        [
            (b"\xff\xff", b"zstd", "undecodable", ("undecodable_request",)),
            (b"x", b"x-new", "unsupported_encoding", ("undecodable_request",)),
            (zstandard.compress(bytes(9 << 20)), b"zstd", "body_too_large", ()),
            (b"--multipart", b"", "not_json", ()),
            (b'{"stream":true}', b"", "not_stated", ()),
        ],
    )
    def test_an_unreadable_request(
        self, request_body: bytes, coding: bytes, why: str, flags: tuple[str, ...]
    ) -> None:
        """The model is unknown with a reason; there are facts in every case."""
        facts = play([(5, END)], request=request_body, request_coding=coding).facts

        assert (facts.model, facts.nulls["model"], facts.flags) == (None, why, flags)


class TestOversize:
    BIG = b"data: {" + b"x" * (2 << 20) + b"}\n\n"

    def test_a_huge_event_between_tokens(self) -> None:
        """Skipped without a parse; later events and usage are read."""
        played = play([(1, text()), (2, self.BIG), (3, text()), (4, usage(9) + END)])

        assert (played.ms(Mark.FIRST_TOKEN), played.ms(Mark.LAST_TOKEN)) == (1, 3)
        assert played.facts.flags == ("oversize_event",)
        assert (played.facts.events, played.facts.terminal) == (5, True)
        assert played.facts.usage is not None

    def test_a_huge_event_before_any_token(self) -> None:
        """It may have been the first token: nobody can know, so there is none."""
        played = play([(1, ROLE), (2, self.BIG), (3, text()), (4, END)])

        assert played.ms(Mark.FIRST_TOKEN) is None
        assert played.facts.nulls["ttft_ms"] == "oversize_event"
        assert played.facts.first_token_kind is None

    def test_a_huge_event_that_says_what_it_is(self) -> None:
        """Responses names its events: an image is a token whatever its size."""
        image = b"event: response.image_generation_call.partial_image\n" + self.BIG
        played = play([(2, image), (3, END)], path=RESPONSES_PATH)

        assert played.ms(Mark.FIRST_TOKEN) == 2
        assert played.facts.first_token_kind is TokenKind.OTHER

    def test_a_huge_document(self) -> None:
        """No counts, with the reason."""
        played = play([(n, bytes(1 << 20)) for n in range(9)], content_type=b"application/json")

        assert played.facts.nulls["tokens"] == "oversize_document"
        assert "oversize_document" in played.facts.flags


class TestEvidence:
    def test_from_head_events_and_trailers(self) -> None:
        """All of it, raw and as understood."""
        timed = data('{"choices":[],"timings":{"prompt_ms":85.3,"prompt_n":120}}')[0]
        played = play(
            [(1, text()), (2, timed), (3, END)],
            headers=((b"OpenAI-Processing-Ms", b"412"),),
            trailers=((b"Server-Timing", b"total;dur=900"),),
        )

        assert [(c.name, c.kind, c.value_us) for c in played.facts.claims] == [
            ("prompt_ms", ClaimKind.DURATION, 85_300),
            ("head_at_slot_start", ClaimKind.QUEUE_ENDS_AT_HEAD, None),
            ("prompt_n", ClaimKind.CONTEXT, None),
            ("openai-processing-ms", ClaimKind.LUMP, 412_000),
            ("total", ClaimKind.CONTEXT, 900_000),
        ]

    def test_words_in_an_answer_are_no_evidence(self) -> None:
        """What the model writes about `timings` is a string inside the JSON."""
        played = play([(1, text('"timings":{"prompt_ms":1}'))])

        assert played.facts.claims == ()


class TestRobustness:
    @pytest.mark.parametrize(
        "payload",
        [
            b'{"choices":[{"delta":{"content":"x"},"logprobs":{"v":NaN}}]}',
            b'{"choices":[{"delta":{"content":"x"},"logprobs":{"v":-Infinity}}]}',
            b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
            b'{"choices":[{"delta":{"content":"\xff\xfe"}}]}',
            b' {"choices":[{"delta":{"content":"x"}}]}',
        ],
    )
    def test_almost_json_is_read(self, payload: bytes) -> None:
        """Real servers send it, and it is a token all the same."""
        played = play([(1, b"data: " + payload + b"\n\n")])

        assert played.ms(Mark.FIRST_TOKEN) == 1
        assert played.facts.flags == ()

    @pytest.mark.parametrize("payload", [b"{broken", b"plain text", b"{" * 5000, b'{"a":1}}'])
    def test_what_is_not_json_is_flagged(self, payload: bytes) -> None:
        """Later events are still read."""
        played = play([(1, b"data: " + payload + b"\n\n"), (2, text())])

        assert played.facts.flags == ("parse_fault",)
        assert played.ms(Mark.FIRST_TOKEN) == 2

    def test_a_fault_of_ours_ends_the_reading_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing comes out but a flag; what was known stays."""
        calls = 0

        def fail(self: object, name: bytes, data: bytes, document: object) -> Observation:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise RuntimeError
            return Observation(token=TokenKind.TEXT)

        monkeypatch.setattr(OpenAiChat, "read_event", fail)
        played = play([(1, text()), (2, text()), (3, text())])

        assert played.facts.flags == ("tap_fault",)
        assert calls == 2
        assert played.ms(Mark.FIRST_TOKEN) == 1
        assert (played.facts.chunks, played.facts.readable) == (3, False)
        assert played.facts.nulls["tokens"] == "tap_fault"

    @pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
    @settings(max_examples=25)
    @given(places=st.lists(st.integers(0, 4000), max_size=9))
    def test_chunking_changes_no_meaning(self, golden: Golden, places: list[int]) -> None:
        """Only counts of reads and what depends on them."""

        def meaning(facts: TapFacts) -> tuple[Any, ...]:
            return (
                facts.events,
                facts.comments,
                facts.token_events,
                facts.first_token_kind,
                facts.usage,
                facts.error,
                facts.finished,
                facts.terminal,
                facts.claims,
                facts.flags,
                facts.nulls,
            )

        body = golden.body
        cuts = sorted({0, len(body), *(min(place, len(body)) for place in places)})
        pieces = [body[a:b] for a, b in pairwise(cuts)]
        whole = play([(1, body)], path=golden.path, content_type=golden.content_type)
        cut = play(enumerate(pieces), path=golden.path, content_type=golden.content_type)

        assert meaning(cut.facts) == meaning(whole.facts)
        assert cut.marks.keys() == whole.marks.keys()

    @given(
        path=st.sampled_from([golden.path for golden in GOLDENS]),
        request=st.binary(max_size=30),
        status=st.integers(100, 599),
        content_type=st.sampled_from(
            [b"", b"text/event-stream", b"application/json", b"application/x-ndjson"]
        ),
        coding=st.sampled_from([b"", b"gzip", b"br", b"zstd", b"deflate", b"\xff"]),
        reads=st.lists(
            st.binary(max_size=40) | st.sampled_from([text(), ROLE, END, CHAT_REASONING.body]),
            max_size=6,
        ),
    )
    def test_garbage_never_raises(
        self,
        path: str,
        request: bytes,
        status: int,
        content_type: bytes,
        coding: bytes,
        reads: list[bytes],
    ) -> None:
        """And no fault of ours hides behind the flag."""
        played = play(
            enumerate(reads),
            path=path,
            request=request,
            request_coding=coding,
            status=status,
            content_type=content_type,
            coding=coding,
        )

        assert "tap_fault" not in played.facts.flags
        assert played.facts.readable or played.facts.nulls["ttft_ms"]

    def test_an_idle_tap_is_small(self) -> None:
        """Nothing of a stream is kept but counters."""
        played = play((n, text()) for n in range(2000))

        assert not hasattr(played.tap, "__dict__")
        assert len(played.tap._gaps._counts) == 1

    def test_facts_are_the_golden_ones(self) -> None:
        """The whole of it, once."""
        played = play([(5, CHAT.body)], request=b'{"stream":true}')

        assert (played.facts.model, played.facts.usage) == ("gpt-x", CHAT.usage)
        assert (played.facts.dialect, played.facts.is_model_call) == ("openai_chat", True)


def test_a_content_encoding_that_is_no_name_is_not_shown() -> None:
    """The value of a header is not for the log; a name of a coding is short and plain."""
    trace = Trace(lambda: 0, 0)
    coding = b"gzip, sk-a-secret-in-the-wrong-place, x y"
    tap = Tap("POST", "/x", trace=trace, request_headers=[(b"content-encoding", coding)])

    assert tap.facts().request_encoding == "gzip, other, other"
