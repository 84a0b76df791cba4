"""What can go wrong with an upstream, as one type: who broke which promise, in which words.

httpx's exceptions are mapped here, once. Neither name nor words ever quote bytes, addresses or
URLs: exceptions of other libraries do, so their texts are not used.
"""

import contextlib
import os
import socket
import ssl
from enum import Enum

import httpx

from proxy.account import Mark, Phase, Trace


class Blame(Enum):
    """Which promise the upstream, or the way to it, broke."""

    UNREACHABLE = "unreachable"
    """No response head: DNS, TCP, TLS, or the connection died before it."""
    ABORTED = "aborted"
    """The response broke off after its head."""
    CONNECT_TIMEOUT = "connect_timeout"
    IDLE_TIMEOUT = "idle_timeout"


class UpstreamFault(Exception):  # noqa: N818  # a fault of the upstream, not an error of ours
    """The upstream did not keep its side. `error` names the class, `detail` says it in words.

    Neither ever quotes bytes, addresses or URLs.
    """

    def __init__(self, blame: Blame, error: str, detail: str) -> None:
        super().__init__(f"{error}: {detail}")
        self.blame = blame
        self.error = error
        self.detail = detail


class mapped_faults(contextlib.AbstractContextManager[None]):  # noqa: N801  # reads as a function
    """Maps httpx's exceptions to `UpstreamFault`, where foreign code is called.

    `own_wire` says that the texts are ours; `forwarded` that a forward proxy is on the way.
    """

    def __init__(self, trace: Trace, *, own_wire: bool = True, forwarded: bool = False) -> None:
        self._trace = trace
        self._own_wire = own_wire
        self._forwarded = forwarded

    def __exit__(self, _kind: object, error: BaseException | None, _tb: object) -> None:
        if not isinstance(error, httpx.TransportError):
            return
        root = error if isinstance(error, httpx.TimeoutException) else _root(error)
        name, words = _name(error, root), self._in_words(error, root)
        # Whom a connection through a forward proxy did not reach is the proxy.
        to_proxy = self._forwarded and self._trace.phase in (Phase.POOL, Phase.DNS, Phase.TCP)
        if to_proxy or isinstance(error, httpx.ProxyError):
            inner = type(root).__name__
            name = "ProxyError" if inner == "ProxyError" else f"ProxyError({inner})"
            words = f"proxy connect failed: {words}"
        raise UpstreamFault(self._blame(error), name, words) from error

    def _blame(self, error: httpx.TransportError) -> Blame:
        if isinstance(error, httpx.ConnectTimeout):
            return Blame.CONNECT_TIMEOUT
        if isinstance(error, httpx.TimeoutException):
            return Blame.IDLE_TIMEOUT
        if Mark.RESPONSE_HEADERS in self._trace.marks:
            return Blame.ABORTED
        return Blame.UNREACHABLE

    def _in_words(self, error: httpx.TransportError, root: BaseException) -> str:
        if isinstance(root, ssl.SSLCertVerificationError):
            return f"certificate not trusted: {_untrusted(root)}"
        if isinstance(root, ssl.SSLError):
            return f"TLS failed: {getattr(root, 'reason', None) or type(root).__name__}"
        if isinstance(root, socket.gaierror):
            return f"name not resolved: {root.strerror or type(root).__name__}"
        if isinstance(root, UnicodeError):
            return "name not resolved: it is not a host name"
        if isinstance(error, httpx.ProxyError):
            wanted = str(error).startswith("407")
            return "the forward proxy " + ("wants credentials" if wanted else "refused")
        if isinstance(root, OSError) and root.errno is not None:
            return os.strerror(root.errno)
        if self._own_wire:
            return str(error) or type(root).__name__
        kinds = (_name(error, root), type(error).__name__)
        return next((_FOREIGN_WORDS[kind] for kind in kinds if kind in _FOREIGN_WORDS), _BROKE)


_FOREIGN_WORDS = {
    "ConnectError": "not connected",
    "ConnectTimeout": "not connected within the limit",
    "ReadTimeout": "no byte from upstream within the limit",
    "WriteTimeout": "upstream took no byte within the limit",
    "StreamReset": "upstream reset this stream",
    "ConnectionTerminated": "upstream ended the HTTP/2 connection",
}
_BROKE = "the connection broke, or what came is not HTTP"


def _root(error: BaseException) -> BaseException:
    """What it began with: the innermost cause; of several that happened side by side, the first."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None:
            error = error.__cause__
        elif error.args and isinstance(error.args[0], BaseException):
            # httpcore's pool drops the cause; its exceptions carry it as their argument.
            error = error.args[0]
        else:
            return error


def _name(error: BaseException, root: BaseException) -> str:
    """The class of `error`, and of its root in brackets when that says more."""
    happened = root.args[0] if root.args else None
    if type(happened).__module__ == "h2.events":
        # httpcore raises the event that ended an HTTP/2 stream inside an exception of its own.
        return type(happened).__name__
    outer, inner = type(error).__name__, type(root).__name__
    return outer if inner == outer else f"{outer}({inner})"


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    # OpenSSL goes on to quote the name that it expected.
    message = error.verify_message.partition(",")[0] or "verification failed"
    if error.verify_code in _UNKNOWN_CA:
        message += " (name a private CA with --ca-file)"
    return message


_UNKNOWN_CA = (18, 19, 20, 21)
"""OpenSSL's X509_V_ERR_* codes for a chain that ends in nothing that is trusted."""
