"""Whose fault it was, its class, and words that quote nothing."""

import errno
import socket
import ssl

import httpx
import pytest

from proxy.account import Mark, Phase
from proxy.upstream.faults import Blame, UpstreamFault, mapped_faults
from tests.upstream.calls import new_trace

SECRET = "sk-secret"


def caused(error: httpx.TransportError, *causes: BaseException) -> httpx.TransportError:
    """`error`, caused by the first of `causes`, and so on."""
    outer: BaseException = error
    for cause in causes:
        outer.__cause__ = cause
        outer = cause
    return error


def mapped(
    error: BaseException,
    *,
    phase: Phase = Phase.WAIT,
    headers: bool = False,
    own_wire: bool = True,
    forwarded: bool = False,
) -> UpstreamFault:
    """The fault that `error` becomes."""
    trace = new_trace()
    trace.entered = phase
    if headers:
        trace.first(Mark.RESPONSE_HEADERS, 0)
    with (
        pytest.raises(UpstreamFault) as caught,
        mapped_faults(trace, own_wire=own_wire, forwarded=forwarded),
    ):
        raise error
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize(
    ("error", "headers", "blame"),
    [
        (httpx.ConnectTimeout(""), False, Blame.CONNECT_TIMEOUT),
        (httpx.ReadTimeout(""), False, Blame.IDLE_TIMEOUT),
        (httpx.ReadTimeout(""), True, Blame.IDLE_TIMEOUT),
        (httpx.ConnectError("x"), False, Blame.UNREACHABLE),
        (httpx.ReadError("x"), False, Blame.UNREACHABLE),
        (httpx.ReadError("x"), True, Blame.ABORTED),
        (httpx.RemoteProtocolError("x"), True, Blame.ABORTED),
    ],
)
def test_blame_is_told_by_the_kind_and_by_whether_a_head_had_come(
    error: httpx.TransportError, headers: bool, blame: Blame
) -> None:
    """A limit, no head, or a broken response."""
    assert mapped(error, headers=headers).blame is blame


@pytest.mark.parametrize(
    ("error", "name", "words"),
    [
        (
            caused(httpx.ConnectError("x"), ConnectionRefusedError(errno.ECONNREFUSED, SECRET)),
            "ConnectError(ConnectionRefusedError)",
            "Connection refused",
        ),
        (
            caused(httpx.ConnectError("x"), socket.gaierror(-2, "Name or service not known")),
            "ConnectError(gaierror)",
            "name not resolved: Name or service not known",
        ),
        (
            caused(httpx.ConnectError("x"), UnicodeError(SECRET)),
            "ConnectError(UnicodeError)",
            "name not resolved: it is not a host name",
        ),
        (
            caused(httpx.ConnectError("x"), ssl.SSLError(1, SECRET)),
            "ConnectError(SSLError)",
            "TLS failed: SSLError",
        ),
        (
            caused(httpx.ReadError("connection lost before a response head"), OSError()),
            "ReadError(OSError)",
            "connection lost before a response head",
        ),
        (
            caused(
                httpx.ConnectError("x"),
                OSError("All connection attempts failed"),
                ExceptionGroup("multiple", [OSError(errno.ENETUNREACH, SECRET), OSError()]),
            ),
            "ConnectError(OSError)",
            "Network is unreachable",
        ),
        (caused(httpx.ReadTimeout("no byte"), TimeoutError()), "ReadTimeout", "no byte"),
        (httpx.ReadError(""), "ReadError", "ReadError"),
    ],
)
def test_class_and_words(error: httpx.TransportError, name: str, words: str) -> None:
    """The class of what happened and of its cause; the words are ours or the system's (B08)."""
    fault = mapped(error)
    assert (fault.error, fault.detail) == (name, words)
    assert str(fault) == f"{name}: {words}"


@pytest.mark.parametrize(
    "kind",
    [
        httpx.ConnectError,
        httpx.ConnectTimeout,
        httpx.ReadError,
        httpx.ReadTimeout,
        httpx.WriteError,
        httpx.WriteTimeout,
        httpx.CloseError,
        httpx.RemoteProtocolError,
        httpx.LocalProtocolError,
        httpx.ProxyError,
        httpx.PoolTimeout,
        httpx.UnsupportedProtocol,
    ],
)
def test_texts_of_other_libraries_are_not_used(kind: type[httpx.TransportError]) -> None:
    """h11 and httpcore quote bytes; there are words of ours for each kind (B18)."""
    inner = type(kind.__name__, (Exception,), {})(SECRET)
    fault = mapped(caused(kind(SECRET), inner), own_wire=False)
    assert SECRET not in str(fault)
    assert fault.detail
    assert fault.error == kind.__name__


@pytest.mark.parametrize("phase", [Phase.POOL, Phase.TCP])
def test_whom_a_forwarded_connection_does_not_reach_is_the_proxy(phase: Phase) -> None:
    """Dead or unknown: the proxy's doing, not upstream's (B17)."""
    refused = caused(httpx.ConnectError("x"), ConnectionRefusedError(errno.ECONNREFUSED, "x"))
    fault = mapped(refused, phase=phase, own_wire=False, forwarded=True)
    assert fault.error == "ProxyError(ConnectionRefusedError)"
    assert fault.detail == "proxy connect failed: Connection refused"
    slow = mapped(httpx.ConnectTimeout(""), phase=phase, own_wire=False, forwarded=True)
    assert slow.blame is Blame.CONNECT_TIMEOUT
    assert slow.detail == "proxy connect failed: not connected within the limit"


def test_behind_the_proxy_it_is_upstream_again() -> None:
    """TLS through a tunnel that stands is with upstream itself."""
    error = caused(httpx.ConnectError("x"), ssl.SSLError(1, "x"))
    fault = mapped(error, phase=Phase.TLS, own_wire=False, forwarded=True)
    assert (fault.error, fault.detail) == ("ConnectError(SSLError)", "TLS failed: SSLError")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("403 Forbidden", "proxy connect failed: the forward proxy refused"),
        ("407 Who?", "proxy connect failed: the forward proxy wants credentials"),
    ],
)
def test_a_proxys_refusal_is_told_without_its_text(text: str, words: str) -> None:
    """Only whether credentials would help."""
    fault = mapped(httpx.ProxyError(text), phase=Phase.TCP, own_wire=False, forwarded=True)
    assert (fault.error, fault.detail) == ("ProxyError", words)


def test_what_is_no_fault_of_the_transport_passes() -> None:
    """Cancellation, and mistakes of ours."""
    with pytest.raises(ZeroDivisionError), mapped_faults(new_trace()):
        raise ZeroDivisionError
