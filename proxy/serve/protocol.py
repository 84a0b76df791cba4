"""The client's side of the wire: uvicorn's server, httptools' parser, our protocol class.

uvicorn offers the seam (`Config(http=...)`). Its stock protocol cannot be transparent: it
lower-cases names, replaces the reason phrase, decodes the target, answers `Expect` by itself and
refuses some requests without telling the application. This class keeps what arrived, stamps it
where it arrived, and hands every request, also a refused one, to somebody who records it.

Sources: RFC 9112 (message framing), RFC 9110 section 7.6.1 and 10.1.1 (Expect).
"""

import asyncio
import os
import select
import socket
import struct
from collections import deque
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from proxy.account import Clock
from proxy.serve.exchange import Exchange, RequestHead
from proxy.serve.headers import tokens
from proxy.serve.refusal import BEHIND_A_BREAK, Refusal, refusal_for, upgrade_refusal

LINGER_S = 2.0
"""How long a closing connection still takes what the client sends, so that a reset does not
destroy the response on its way (RFC 9112, section 9.6)."""
_LEFT = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
_POLL_S = 0.25
_RESET = struct.pack("ii", 1, 0)


class RelayProtocol(HttpToolsProtocol):
    """One client connection. `clock` and `max_head` (bytes) are bound with `functools.partial`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        clock: Clock,
        max_head: int,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.clock = clock
        self.max_head = max_head
        self._fd = -1
        self._now = 0
        self._first_byte = 0
        self._bodiless = 0
        """Bytes read since a head began, or since the last piece of a body."""
        self._read = 0
        self._in_head = True
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._trailers: list[tuple[bytes, bytes]] = []
        self._current: Exchange | None = None
        self._receiving: Exchange | None = None
        self._waiting: deque[tuple[Exchange, Refusal | None]] = deque()
        self._closing = False
        self._closing_soon = False
        self._last = False
        self._deaf = False
        self._upgrading = False
        self._reading_paused = False
        self._write_paused = False
        self._poller: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        if transport.get_extra_info("ssl_object") is None:
            self._fd = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        """Stamp, then parse; what the parser refuses is refused with a status and a record."""
        self._now = self.clock()
        self._unset_keepalive_if_required()
        if self._closing:
            return
        if self._in_head and not self._bodiless:
            self._first_byte = self._now
        self._read = len(data)
        self._bodiless += self._read
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade_ignored(data, upgrade)
        except httptools.HttpParserError as error:
            self._refuse(refusal_for(error))
        else:
            if self._bodiless > self.max_head:
                # A head, or trailers and chunk extensions, which the parser would keep for ever.
                self._refuse(Refusal.head_too_large(self.max_head))

    def eof_received(self) -> None:
        """FIN: the client left. A half-close cannot be told from it."""
        self._client_left(self.clock())

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it."""
        self._client_left(self.clock())
        for timer in (self._poller, self._linger):
            if timer is not None:
                timer.cancel()
        self._poller = self._linger = None
        self._fd = -1
        self.cycle = None  # type: ignore[assignment]  # uvicorn's own, never used here
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._write_paused = True
        if self._current is not None and self._current.write_paused_at is None:
            self._current.write_paused_at = self.clock()

    def resume_writing(self) -> None:
        """The client took what was written."""
        self._write_paused = False
        exchange = self._current
        if exchange is not None:
            if exchange.write_paused_at is not None:
                exchange.write_pending_ns += self.clock() - exchange.write_paused_at
                exchange.write_paused_at = None
            if exchange.on_writable is not None:
                exchange.on_writable()

    def shutdown(self) -> None:
        """uvicorn asks every connection to end: idle ones now, busy ones after their response."""
        self._closing_soon = True
        if self._current is None:
            self.transport.close()

    # -- the parser's callbacks

    def on_message_begin(self) -> None:
        """A request starts."""
        if self._last:
            # Behind the last request of a connection nothing counts (RFC 9112, section 9.6).
            self._deaf = True
        if self._deaf:
            return
        self._target = b""
        self._fields = []
        self._trailers = []
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """A piece of the target, raw."""
        if not self._deaf:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field, or, after the body, a trailer field."""
        if self._deaf:
            return
        (self._fields if self._in_head else self._trailers).append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete: the request starts here."""
        if self._deaf:
            return
        self._in_head = False
        head = self._request_head()
        upgrade = self.parser.should_upgrade()
        refusal = upgrade_refusal(head) if upgrade else None
        if max(self._bodiless, self._read) > self.max_head and _size(head) > self.max_head:
            refusal = Refusal.head_too_large(self.max_head)
        self._bodiless = 0
        # llhttp calls every upgrade the end of keep-alive; one that is ignored is not.
        keep = (
            refusal is None
            and head.version != "1.0"
            and (b"close" not in tokens(head.fields, b"connection"))
            and (upgrade or self.parser.should_keep_alive())
        )
        exchange = Exchange(head, self, keep=keep)
        self._last = not keep
        self._receiving = exchange
        self._upgrading = upgrade
        if refusal is not None:
            self._closing = True
        self._admit(exchange, refusal)

    def on_body(self, body: bytes) -> None:
        """A piece of the request's body, transfer framing removed."""
        self._bodiless = 0
        if self._receiving is not None:
            self._receiving.body_arrived(body)

    def on_message_complete(self) -> None:
        """The request is complete; what follows belongs to another one."""
        if self._upgrading and self._receiving is not None and _has_body(self._receiving.head):
            # llhttp calls a request that asks for an upgrade complete before its body.
            return
        self._in_head = True
        self._bodiless = 0
        exchange, self._receiving = self._receiving, None
        if exchange is not None:
            exchange.trailers = self._trailers
            exchange.request_ended(self._now)

    # -- what an exchange needs of its connection

    def write(self, data: bytes) -> bool:
        """Write at once: straight to the kernel when nothing waits, else behind what waits."""
        transport = self.transport
        if not data or transport.is_closing():
            return True
        if self._fd >= 0 and not self._write_paused and not transport.get_write_buffer_size():
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                # The transport finds out the same way and tells connection_lost.
                transport.write(data)
                return True
            if sent == len(data):
                return True
            data = data[sent:]
        transport.write(data)
        return not self._write_paused

    def pause_reading(self) -> None:
        """Stop reading, but notice a client that leaves meanwhile."""
        if not self._reading_paused:
            self._reading_paused = True
            self.flow.pause_reading()
            self._poll_later()

    def resume_reading(self) -> None:
        """Read again, unless pipelined requests wait."""
        if self._reading_paused and not self._waiting:
            self._reading_paused = False
            if self._poller is not None:
                self._poller.cancel()
                self._poller = None
            if not self.transport.is_closing():
                self.flow.resume_reading()

    def exchange_done(self, *, keep: bool) -> None:
        """The response is complete: the next request, an idle connection, or the end of it."""
        self.server_state.total_requests += 1
        unread = self._current is not None and not self._current.request_complete
        self._current = None
        if self.transport.is_closing():
            return
        if not keep:
            self._close_gently(unread=unread)
        elif self._waiting:
            self._start(*self._waiting.popleft())
            self.resume_reading()
        elif self._closing_soon:
            self._close_gently(unread=unread)
        else:
            self.resume_reading()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def break_off(self, *, reset: bool) -> None:
        """End uncleanly: no final chunk, or a reset where only that shows the break."""
        self._current = None
        self._closing = True
        if self.transport.is_closing():
            return
        if reset and self._fd >= 0:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.close()
        waiting, self._waiting = self._waiting, deque()
        for exchange, _ in waiting:
            # Their connection ends before their turn: a record, and nobody to answer.
            exchange.client_left(self.clock())
            self._start(exchange, BEHIND_A_BREAK)

    # -- inside

    def _method(self) -> str:
        try:
            return bytes(self.parser.get_method()).decode("ascii", "replace")
        except (AttributeError, httptools.HttpParserError):
            return ""

    def _request_head(self) -> RequestHead:
        length: int | None = None
        chunked = expects = False
        for name, value in self._fields:
            lower = name.lower()
            if lower == b"content-length":
                length = int(value)
            elif lower == b"transfer-encoding":
                chunked = True
            elif lower == b"expect" and value.strip().lower() == b"100-continue":
                expects = True
        return RequestHead(
            method=self._method(),
            target=self._target,
            version=self.parser.get_http_version(),
            fields=self._fields,
            started=self._now,
            length=length,
            chunked=chunked,
            expects_continue=expects,
        )

    def _admit(self, exchange: Exchange, refusal: Refusal | None) -> None:
        if self._current is None:
            self._start(exchange, refusal)
        else:
            # Pipelined: it waits its turn, and reading waits with it.
            self._waiting.append((exchange, refusal))
            self.pause_reading()

    def _start(self, exchange: Exchange, refusal: Refusal | None) -> None:
        self._current = exchange
        head = exchange.head
        scope: Any = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": head.version,
            "method": head.method,
            "raw_path": head.target,
            "headers": head.fields,
            "server": self.server,
            "client": self.client,
            "state": self.app_state,
            "extensions": {"proxy.exchange": exchange, "proxy.refusal": refusal},
        }
        task = self.loop.create_task(self.app(scope, _no_receive, _no_send))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what cannot be relayed, have it recorded, and end the connection."""
        exchange = self._receiving
        if exchange is None and self._last:
            return
        self._closing = self._last = True
        if exchange is not None:
            # The framing of a body broke: who relays it has to end it.
            exchange.body_broke(refusal.error)
        else:
            self._receiving = Exchange(self._partial_head(), self, keep=False)
            self._admit(self._receiving, refusal)

    def _partial_head(self) -> RequestHead:
        return RequestHead(
            method=self._method() if self._target else "",
            target=self._target,
            version="1.1",
            fields=[],
            started=self._first_byte or self._now,
        )

    def _upgrade_ignored(self, data: bytes, upgrade: BaseException) -> None:
        """An upgrade that is not taken: the request goes on as HTTP/1.1, with a fresh parser.

        llhttp stops behind the head of such a request, so the parser of its body is told the
        framing by a head of our own, whose callbacks are not heard.
        """
        if self._closing:
            return
        self._upgrading = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        pending = self._receiving
        if pending is not None:
            framing = (
                b"Transfer-Encoding: chunked"
                if pending.head.chunked
                else b"Content-Length: %d" % (pending.head.length or 0)
            )
            self._deaf = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n")
            self._deaf = False
        self._in_head = self._receiving is None
        rest = data[upgrade.args[0] :]
        if rest:
            self.data_received(rest)

    def _client_left(self, at: int) -> None:
        self._closing = True
        waiting, self._waiting = self._waiting, deque()
        if self._current is not None:
            self._current.client_left(at)
        for exchange, refusal in waiting:
            # They leave a record, too: each is started only to find its client gone.
            exchange.client_left(at)
            self._start(exchange, refusal)

    def _close_gently(self, *, unread: bool) -> None:
        self._closing = True
        if not unread or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.resume_reading()
        self._linger = self.loop.call_later(LINGER_S, self.transport.close)

    def _poll_later(self) -> None:
        if self._fd >= 0:
            self._poller = self.loop.call_later(_POLL_S, self._poll)

    def _poll(self) -> None:
        self._poller = None
        if not self._reading_paused or self._fd < 0 or self.transport.is_closing():
            return
        poll = select.poll()
        poll.register(self._fd, _LEFT)
        if poll.poll(0):
            self._client_left(self.clock())
            self.transport.abort()
        else:
            self._poll_later()


def _size(head: RequestHead) -> int:
    return len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.fields)


def _has_body(head: RequestHead) -> bool:
    return head.chunked or bool(head.length)


async def _no_receive() -> Any:
    raise RuntimeError("the request is read from the exchange")


async def _no_send(_message: Any) -> None:
    raise RuntimeError("the response is written to the exchange")
