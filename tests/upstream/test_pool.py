"""Who may use which connection."""

import asyncio
from dataclasses import dataclass

import pytest

from proxy.upstream.pool import Pool

SECOND = 1_000_000_000


@dataclass(eq=False)
class Fake:
    """A connection that is alive until told otherwise."""

    idle_since: int = 0
    alive: bool = True

    def usable(self) -> bool:
        return self.alive


def pool(limit: int = 2) -> Pool[Fake]:
    return Pool(limit=limit, keepalive_ns=55 * SECOND)


def test_the_latest_idle_connection_is_reused_first() -> None:
    """So that a few stay warm and the others expire."""

    async def story() -> None:
        p = pool()
        await p.acquire(0)
        await p.acquire(0)
        first, second = Fake(), Fake()
        p.release(first)
        p.release(second)
        assert (second, []) == await p.acquire(1)
        assert repr(p) == "<Pool 1 busy, 1 idle, 0 waiting>"

    asyncio.run(story())


def test_dead_and_expired_connections_are_handed_out_for_closing() -> None:
    """Never for use."""

    async def story() -> None:
        p = pool()
        await p.acquire(0)
        await p.acquire(0)
        expired, dead = Fake(idle_since=0), Fake(idle_since=59 * SECOND, alive=False)
        p.release(expired)
        p.release(dead)
        connection, closed = await p.acquire(60 * SECOND)
        assert connection is None
        assert closed == [dead, expired]

    asyncio.run(story())


def test_waiters_are_served_in_order_and_get_the_connection_itself() -> None:
    """A released connection goes to who waited longest; a closed one frees the right to open."""

    async def story() -> None:
        p = pool(limit=1)
        await p.acquire(0)
        one = asyncio.create_task(p.acquire(0))
        two = asyncio.create_task(p.acquire(0))
        await asyncio.sleep(0)
        connection = Fake()
        p.release(connection)
        assert (connection, []) == await one
        p.forget()
        assert await two == (None, [])

    asyncio.run(story())


def test_a_waiter_that_leaves_loses_nothing() -> None:
    """Cancelled before or after its turn came: the slot goes on to the next one (B42)."""

    async def story() -> None:
        p = pool(limit=1)
        await p.acquire(0)
        leaver = asyncio.create_task(p.acquire(0))
        granted = asyncio.create_task(p.acquire(0))
        patient = asyncio.create_task(p.acquire(0))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.sleep(0)
        p.forget()
        granted.cancel()
        assert await patient == (None, [])
        p.forget()
        assert repr(p) == "<Pool 0 busy, 0 idle, 0 waiting>"

    asyncio.run(story())


def test_a_waiter_that_leaves_just_before_its_turn_is_passed_over() -> None:
    """Cancelled and served in the same turn of the loop: it ends as cancelled, nothing is lost."""

    async def story() -> None:
        p = pool(limit=1)
        await p.acquire(0)
        leaver = asyncio.create_task(p.acquire(0))
        patient = asyncio.create_task(p.acquire(0))
        await asyncio.sleep(0)
        leaver.cancel()
        p.forget()
        assert await patient == (None, [])
        with pytest.raises(asyncio.CancelledError):
            await leaver

    asyncio.run(story())


def test_a_connection_that_died_on_its_way_to_a_waiter_is_replaced() -> None:
    """The waiter gets the right to open another one."""

    async def story() -> None:
        p = pool(limit=1)
        await p.acquire(0)
        waiter = asyncio.create_task(p.acquire(0))
        await asyncio.sleep(0)
        connection = Fake()
        p.release(connection)
        connection.alive = False
        assert await waiter == (None, [connection])
        assert repr(p) == "<Pool 1 busy, 0 idle, 0 waiting>"

    asyncio.run(story())
