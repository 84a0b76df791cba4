"""Golden streams in the shapes of the providers, each event with what it means.

A step is one event as it stands on the wire and the kind of token it is (None: none). `Golden.body`
is the whole stream; `usage`, `model`, `error` and `terminal` are what the stream as a whole says.
"""

from dataclasses import dataclass

from proxy.dialects import TokenKind, Usage
from proxy.framing import Framing, Ndjson, Sse

TEXT, REASONING, TOOL_CALL = TokenKind.TEXT, TokenKind.REASONING, TokenKind.TOOL_CALL
REFUSAL, OTHER = TokenKind.REFUSAL, TokenKind.OTHER

Step = tuple[bytes, TokenKind | None]


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One stream: `path` it answers, its steps, and what it comes to."""

    name: str
    dialect: str
    path: str
    steps: tuple[Step, ...]
    content_type: bytes = b"text/event-stream"
    model: str | None = None
    usage: Usage | None = None
    error: str | None = None
    finished: bool = True
    terminal: bool = True

    @property
    def body(self) -> bytes:
        return b"".join(wire for wire, _ in self.steps)

    def framing(self) -> Framing:
        return Ndjson() if b"ndjson" in self.content_type else Sse()

    @property
    def kinds(self) -> list[TokenKind | None]:
        """Per data event: comments, alone or in front of one, are none."""
        return [kind for wire, kind in self.steps if not wire.startswith(b":")]


def data(json: str, kind: TokenKind | None = None) -> Step:
    """`data:` alone, as Chat Completions sends it."""
    return f"data: {json}\n\n".encode(), kind


def event(json: str, kind: TokenKind | None = None) -> Step:
    """`event:` and `data:`, named by the JSON's type, as Anthropic and Responses send it."""
    name = json.split('"type":"')[1].split('"')[0]
    return f"event: {name}\ndata: {json}\n\n".encode(), kind


def line(json: str, kind: TokenKind | None = None) -> Step:
    """One line, as Ollama sends it."""
    return f"{json}\n".encode(), kind


def chunk(delta: str, kind: TokenKind | None = None, finish: str = "null") -> Step:
    """A chat chunk with one choice."""
    return data(
        '{"id":"c1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-x",'
        f'"choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}],'
        '"usage":null}',
        kind,
    )


DONE = data("[DONE]")

CHAT = Golden(
    name="chat",
    dialect="openai_chat",
    path="/v1/chat/completions",
    steps=(
        chunk('{"role":"assistant","content":"","refusal":null}'),
        chunk('{"content":"Hi"}', TEXT),
        chunk('{"content":" there"}', TEXT),
        chunk("{}", finish='"stop"'),
        data(
            '{"id":"c1","model":"gpt-x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,'
            '"prompt_tokens_details":{"cached_tokens":4},'
            '"completion_tokens_details":{"reasoning_tokens":0}}}'
        ),
        DONE,
    ),
    model="gpt-x",
    usage=Usage(input=9, cached=4, output=3, reasoning=0),
)
CHAT_TOOLS = Golden(
    name="chat tools",
    dialect="openai_chat",
    path="/api/v1/chat/completions",
    steps=(
        chunk('{"role":"assistant","content":null}'),
        chunk(
            '{"tool_calls":[{"index":0,"id":"c1","type":"function",'
            '"function":{"name":"f","arguments":""}}]}',
            TOOL_CALL,
        ),
        chunk('{"tool_calls":[{"index":0,"function":{"arguments":""}}]}'),
        chunk('{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\":"}}]}', TOOL_CALL),
        chunk('{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}', TOOL_CALL),
        chunk("{}", finish='"tool_calls"'),
        DONE,
    ),
    model="gpt-x",
)
CHAT_REASONING = Golden(
    name="chat reasoning",
    dialect="openai_chat",
    path="/chat/completions",
    steps=(
        (b": OPENROUTER PROCESSING\n\n", None),
        chunk('{"role":"assistant","content":null,"reasoning_content":""}'),
        chunk('{"reasoning_content":"hm","content":null}', REASONING),
        chunk('{"reasoning":"hm","content":""}', REASONING),
        (b": keep-alive\n\n", None),
        chunk('{"content":"A"}', TEXT),
        chunk("{}", finish='"length"'),
        DONE,
    ),
    model="gpt-x",
)
CHAT_AZURE = Golden(
    name="chat on Azure, cut by an error",
    dialect="openai_chat",
    path="/openai/deployments/d/chat/completions",
    steps=(
        data(
            '{"id":"","model":"","object":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}'
        ),
        chunk('{"role":"assistant","content":""}'),
        chunk('{"content":"x"}', TEXT),
        data('{"error":{"message":"no","type":null,"code":"rate_limit_exceeded"}}'),
    ),
    model="gpt-x",
    error="rate_limit_exceeded",
    finished=False,
    terminal=False,
)
COMPLETIONS = Golden(
    name="legacy completions",
    dialect="openai_chat",
    path="/v1/completions",
    steps=(
        data('{"id":"c","object":"text_completion","model":"m","choices":[{"index":0,"text":""}]}'),
        data(
            '{"id":"c","model":"m","choices":[{"index":0,"text":"Hi","finish_reason":null}]}', TEXT
        ),
        data('{"id":"c","model":"m","choices":[{"index":0,"text":"","finish_reason":"stop"}]}'),
        DONE,
    ),
    model="m",
)

_RESPONSE = '"id":"resp_1","object":"response","model":"gpt-x"'
RESPONSES = Golden(
    name="responses",
    dialect="openai_responses",
    path="/v1/responses",
    steps=(
        event(
            f'{{"type":"response.created","response":{{{_RESPONSE},"status":"in_progress","output":[]}}}}'
        ),
        event(f'{{"type":"response.in_progress","response":{{{_RESPONSE},"usage":null}}}}'),
        event(
            '{"type":"response.output_item.added","item":{"id":"rs","type":"reasoning","summary":[],"encrypted_content":"gAAA"}}'
        ),
        event(
            '{"type":"response.reasoning_summary_part.added","part":{"type":"summary_text","text":""}}'
        ),
        event('{"type":"response.reasoning_summary_text.delta","delta":"hm"}', REASONING),
        event('{"type":"response.reasoning_summary_text.done","text":"hm"}'),
        event('{"type":"keepalive","sequence_number":7}'),
        event(
            '{"type":"response.output_item.done","item":{"type":"reasoning","summary":'
            '[{"type":"summary_text","text":"hm"}]}}'
        ),
        event(
            '{"type":"response.output_item.added","item":{"type":"message","role":"assistant","content":[]}}'
        ),
        event('{"type":"response.content_part.added","part":{"type":"output_text","text":""}}'),
        event('{"type":"response.output_text.delta","delta":""}'),
        event('{"type":"response.output_text.delta","delta":"Hi","logprobs":[]}', TEXT),
        event('{"type":"response.output_text.done","text":"Hi"}'),
        event('{"type":"response.content_part.done","part":{"type":"output_text","text":"Hi"}}'),
        event(
            '{"type":"response.output_item.done","item":{"type":"message","content":'
            '[{"type":"output_text","text":"Hi"}]}}'
        ),
        event(
            f'{{"type":"response.completed","response":{{{_RESPONSE},"status":"completed","error":null,'
            '"output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],'
            '"usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":20},'
            '"output_tokens":12,"output_tokens_details":{"reasoning_tokens":10}}}}'
        ),
    ),
    model="gpt-x",
    usage=Usage(input=30, cached=20, output=12, reasoning=10),
)
RESPONSES_TOOLS = Golden(
    name="responses tools",
    dialect="openai_responses",
    path="/backend-api/codex/responses",
    steps=(
        event(f'{{"type":"response.created","response":{{{_RESPONSE}}}}}'),
        event(
            '{"type":"response.output_item.added","item":{"type":"function_call","name":"shell",'
            '"arguments":"","call_id":"c"}}',
            TOOL_CALL,
        ),
        event('{"type":"response.function_call_arguments.delta","delta":"{}"}', TOOL_CALL),
        event('{"type":"response.function_call_arguments.done","arguments":"{}"}'),
        event(
            '{"type":"response.output_item.added","item":{"type":"custom_tool_call","name":"patch",'
            '"input":""}}',
            TOOL_CALL,
        ),
        event('{"type":"response.custom_tool_call_input.delta","delta":"*** Begin"}', TOOL_CALL),
        event(
            f'{{"type":"response.incomplete","response":{{{_RESPONSE},"status":"incomplete","error":null,'
            '"incomplete_details":{"reason":"max_output_tokens"},"usage":null}}'
        ),
    ),
    model="gpt-x",
)
RESPONSES_FAILED = Golden(
    name="responses failed",
    dialect="openai_responses",
    path="/v1/responses",
    steps=(
        event(f'{{"type":"response.queued","response":{{{_RESPONSE}}}}}'),
        event(
            '{"type":"response.failed","response":{"status":"failed","model":"gpt-x","output":[],'
            '"error":{"code":"server_error","message":"sorry"}}}'
        ),
    ),
    model="gpt-x",
    error="server_error",
)

ANTHROPIC = Golden(
    name="anthropic",
    dialect="anthropic_messages",
    path="/v1/messages",
    steps=(
        event(
            '{"type":"message_start","message":{"id":"msg_1","type":"message","model":"claude-x",'
            '"content":[],"stop_reason":null,"usage":{"input_tokens":30,"output_tokens":1,'
            '"cache_creation_input_tokens":500,"cache_read_input_tokens":2000}}}'
        ),
        event(
            '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}'
        ),
        event('{"type":"ping"}'),
        event(
            '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}',
            REASONING,
        ),
        event(
            '{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq"}}'
        ),
        event('{"type":"content_block_stop","index":0}'),
        event('{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}'),
        event(
            '{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}',
            TEXT,
        ),
        event('{"type":"content_block_stop","index":1}'),
        event(
            '{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t",'
            '"name":"Bash","input":{}}}',
            TOOL_CALL,
        ),
        event(
            '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}'
        ),
        event(
            '{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}',
            TOOL_CALL,
        ),
        event('{"type":"content_block_stop","index":2}'),
        event(
            '{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},'
            '"usage":{"output_tokens":40}}'
        ),
        event('{"type":"message_stop"}'),
    ),
    model="claude-x",
    usage=Usage(input=2530, cached=2000, output=40),
)
ANTHROPIC_OVERLOADED = Golden(
    name="anthropic overloaded",
    dialect="anthropic_messages",
    path="/anthropic/v1/messages",
    steps=(
        event('{"type":"ping"}'),
        event('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
    ),
    error="overloaded_error",
    finished=False,
    terminal=False,
)

OLLAMA_CHAT = Golden(
    name="ollama chat",
    dialect="ollama",
    path="/api/chat",
    content_type=b"application/x-ndjson",
    steps=(
        line(
            '{"model":"qwen","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}',
            REASONING,
        ),
        line('{"model":"qwen","message":{"role":"assistant","content":"Hi"},"done":false}', TEXT),
        line(
            '{"model":"qwen","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f"}}]},"done":false}',
            TOOL_CALL,
        ),
        line(
            '{"model":"qwen","message":{"role":"assistant","content":""},"done":true,'
            '"done_reason":"stop","total_duration":2420000000,"load_duration":1500000000,'
            '"prompt_eval_count":300,"prompt_eval_duration":90000000,"eval_count":40,'
            '"eval_duration":800000000}'
        ),
    ),
    model="qwen",
    usage=Usage(input=300, output=40),
)
OLLAMA_GENERATE = Golden(
    name="ollama generate",
    dialect="ollama",
    path="/ollama/api/generate",
    content_type=b"application/x-ndjson",
    steps=(
        line('{"model":"qwen","response":"","done":false}'),
        line('{"model":"qwen","response":"Hi","done":false}', TEXT),
        line('{"error":"unexpected EOF"}'),
    ),
    model="qwen",
    error="error",
    finished=False,
    terminal=False,
)
OPAQUE = Golden(
    name="unknown",
    dialect="opaque",
    path="/v1beta/models/g:streamGenerateContent",
    steps=(data('{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}'),),
    finished=False,
    terminal=False,
)

GOLDENS = (
    CHAT,
    CHAT_TOOLS,
    CHAT_REASONING,
    CHAT_AZURE,
    COMPLETIONS,
    RESPONSES,
    RESPONSES_TOOLS,
    RESPONSES_FAILED,
    ANTHROPIC,
    ANTHROPIC_OVERLOADED,
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    OPAQUE,
)
