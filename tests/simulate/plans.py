"""Plans for the tests of everything that is pure."""

from typing import Any

from proxy.simulate.answer import Asked
from proxy.simulate.payloads import BY_NAME
from proxy.simulate.plan import plan
from proxy.simulate.script import read_script
from proxy.simulate.step import Plan, Step

from .client import MS, Reply, parse


def planned(
    script: Any = "", *, slots: bool = False, dialect: str = "openai_chat", **asked: Any
) -> Plan:
    """The plan for a request that streams, unless `asked` says otherwise."""
    asking = Asked(BY_NAME[dialect], "m", **{"stream": True, **asked})
    return plan(read_script(script), asking, slots=slots)


def wire(script: Any = "", **asked: Any) -> bytes:
    """Everything that a plan without a moment in it puts on the wire."""
    steps = planned(script, **asked).steps
    assert all(step.wire is not None for step in steps)
    return b"".join(step.wire or b"" for step in steps)


def reply(script: Any = "", **asked: Any) -> Reply:
    """The same as an answer."""
    return parse(wire(script, **asked), "HEAD" if asked.get("head_only") else "POST")


def instants(found: Plan) -> list[tuple[float, str]]:
    """The steps that carry something, with their instants in ms."""
    return [(step.at / MS, step.name) for step in found.steps if _tells(step)]


def _tells(step: Step) -> bool:
    return bool(step.events or step.raw or step.name in ("head", "end", "slot", "cut", "generated"))
