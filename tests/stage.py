"""A proxy and an upstream that stay up while many tests play on them: starting them takes a while.

A test says what upstream does and tells its story; the next one finds nothing of it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import uvloop

from tests.support import PATIENCE_S, Handler, Peer, Proxied, Upstream, check, proxied, upstream

Story = Callable[[Proxied, Upstream], Awaitable[None]]


@dataclass
class Stage:
    """One proxy before one upstream, and the loop that they run on."""

    loop: asyncio.Runner
    proxy: Proxied
    upstream: Upstream
    handle: Handler
    peers: list[Peer] = field(default_factory=list)

    def play(self, handle: Handler, story: Story) -> None:
        """Tell a story before an upstream that does `handle`; every record is checked."""
        self.handle = handle
        self.loop.run(self._play(story))

    async def _play(self, story: Story) -> None:
        proxy = self.proxy
        try:
            await story(proxy, self.upstream)
        finally:
            for client in proxy.clients:
                client.close()
            async with asyncio.timeout(PATIENCE_S):
                while len(proxy.proxy.ledger):
                    await asyncio.sleep(0.002)
            for peer in self.peers:  # idle connections must not reach the next test
                peer.writer.transport.abort()
            records = list(proxy.records)
            faults = list(self.upstream.faults)
            for seen in (proxy.clients, self.peers, proxy.records, self.upstream.faults):
                seen.clear()
            self.upstream.connections = 0
        assert not faults, faults
        for record in records:
            check(record)


@contextlib.contextmanager
def staged() -> Iterator[Stage]:
    """A stage, for a fixture of a module."""
    stack = contextlib.AsyncExitStack()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:

        async def handle(peer: Peer) -> None:
            stage.peers.append(peer)
            await stage.handle(peer)

        async def start() -> Stage:
            up = await stack.enter_async_context(upstream(handle))
            return Stage(loop, await stack.enter_async_context(proxied(up.url)), up, handle)

        stage = loop.run(start())
        yield stage
        loop.run(stack.aclose())
