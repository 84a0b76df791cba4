"""How a request ended, and whose doing it was. Pure."""

from dataclasses import dataclass

from proxy.account import Phase
from proxy.record import EndedBy, Outcome
from proxy.serve.tap import TapFacts
from proxy.upstream.client import Blame, UpstreamFault


@dataclass(frozen=True, slots=True)
class Ending:
    """One ending. `error` names a class; it is None when nothing went wrong."""

    outcome: Outcome
    by: EndedBy
    phase: Phase
    error: str | None = None
    flags: tuple[str, ...] = ()


def of_response(status: int, facts: TapFacts, phase: Phase, *, client_left: bool = False) -> Ending:
    """A response that arrived whole, be it after its client left with the whole answer."""
    if status >= 400:
        error = facts.error_type or f"Status{status}"
        return Ending(Outcome.UPSTREAM_ERROR, EndedBy.UPSTREAM, phase, error)
    if 300 <= status < 400 and status != 304:
        return Ending(Outcome.REDIRECT, EndedBy.UPSTREAM, phase)
    if facts.error is not None:
        return Ending(Outcome.STREAM_ERROR, EndedBy.UPSTREAM, phase, facts.error)
    flags: tuple[str, ...] = ()
    if facts.stream and facts.is_model_call and not facts.terminal and facts.readable:
        if not facts.finished:
            return Ending(Outcome.INCOMPLETE, EndedBy.UPSTREAM, phase, "NoTerminalEvent")
        flags = ("no_terminal_event",)
    if client_left:
        return of_client_leaving(phase, answered=True)
    return Ending(Outcome.OK, EndedBy.UPSTREAM, phase, flags=flags)


def of_fault(fault: UpstreamFault, phase: Phase) -> Ending:
    """Upstream, or the way to it, failed; a limit of ours on its silence is ours."""
    if fault.blame is Blame.IDLE_TIMEOUT:
        return Ending(Outcome.TIMEOUT, EndedBy.PROXY, phase, fault.error)
    if fault.blame is Blame.CONNECT_TIMEOUT:
        return Ending(Outcome.TIMEOUT, EndedBy.UPSTREAM, phase, fault.error)
    if fault.blame is Blame.ABORTED:
        return Ending(Outcome.UPSTREAM_ABORTED, EndedBy.UPSTREAM, phase, fault.error)
    return Ending(Outcome.UPSTREAM_UNREACHABLE, EndedBy.UPSTREAM, phase, fault.error)


def of_client_leaving(phase: Phase, *, answered: bool) -> Ending:
    """The client left; after the whole answer that is how a success looks."""
    if answered:
        return Ending(Outcome.OK, EndedBy.CLIENT, phase, flags=("client_closed_early",))
    return Ending(Outcome.CLIENT_DISCONNECT, EndedBy.CLIENT, phase, "ClientDisconnect")
