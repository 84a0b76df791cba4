"""OpenAI completions, the older text-in, text-out format that many servers still speak.

Shapes: openai-python `types/completion.py`. Everything is text here: reasoning, refusals and tool
calls come as `text`.
"""

from ._api import CREATED, Answer, Event, Events, Evidence, Json, merged
from .openai_chat import DONE, OpenAIChat, usage_json


class OpenAICompletions(OpenAIChat):
    """`/completions`."""

    name = "openai_completions"
    suffixes = ("/completions",)

    def opening(self, answer: Answer) -> Events:
        return ()

    def token(self, answer: Answer, index: int) -> Events:
        return (Event(self._text(answer, answer.tokens[index].text, index + 1)),)

    def closing(self, answer: Answer, evidence: Evidence) -> Events:
        finish = answer.finish_reason or "stop"
        events = [Event(self._text(answer, "", len(answer.tokens), finish))]
        if answer.usage:
            last = self._text(answer, "", 0)
            events.append(Event({**last, "choices": [], "usage": usage_json(answer.usage)}))
        return merged([*events, DONE], evidence)

    def whole(self, answer: Answer, evidence: Evidence) -> Json:
        text = "".join(token.text for token in answer.tokens)
        document = self._text(answer, text, 0, answer.finish_reason or "stop")
        if answer.usage:
            document["usage"] = usage_json(answer.usage)
        return {**document, **evidence}

    def _text(self, answer: Answer, text: str, output: int, finish: str | None = None) -> Json:
        document: Json = {
            "id": "cmpl-sim",
            "object": "text_completion",
            "created": CREATED,
            "model": answer.model,
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}],
        }
        if answer.usage and answer.usage_in_every_event:
            document["usage"] = usage_json(answer.usage._replace(output=output))
        return document


openai_completions = OpenAICompletions()
