"""The last step before the transport."""

import asyncio

import pytest

from proxy.simulate.outlet import Outlet
from proxy.simulate.server import Simulator
from proxy.simulate.timekeeper import Timekeeper

from .client import PATIENCE_S, clock, connected, exchange, parse, request, run


class Fake(asyncio.Transport):
    """Remembers what is written, piece by piece."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize("delay", [0, 1_000_000])
def test_pieces_are_written_one_by_one(delay: int) -> None:
    """In order, each in a turn of its own; then whoever waits is called."""

    async def story() -> None:
        fake, done = Fake(), asyncio.Event()
        outlet = Outlet(fake, Timekeeper(clock), 3, delay)
        outlet.write(b"abcdefgh")
        outlet.write(b"ij")
        assert fake.written == [b"abc"]
        outlet.when_written(done.set)
        assert not done.is_set()
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        assert fake.written == [b"abc", b"def", b"gh", b"ij"]
        outlet.write(b"")
        outlet.when_written(done.clear)
        assert not done.is_set()

    run(story)


def test_an_answer_in_pieces_is_the_same_answer() -> None:
    """The same bytes in the same order."""

    async def story() -> None:
        async with Simulator() as sim:
            whole = await exchange(sim, request("tokens=2"))
            assert await exchange(sim, request("tokens=2 fragment=9")) == whole

    run(story)


def test_a_cut_waits_for_its_pieces() -> None:
    """Everything before it arrives."""

    async def story() -> None:
        async with Simulator() as sim:
            script = "tokens=2 fragment=9 fragment_delay=1 cut.after_tokens=1 cut.how=rst"
            data, how = await exchange(sim, request(script))
            assert (len(parse(data).objects), how) == (2, "rst")

    run(story)


def test_a_client_that_leaves_between_pieces() -> None:
    """Ends them."""

    async def story() -> None:
        async with Simulator() as sim:
            async with connected(sim) as client:
                await client.send(request("fragment=9 fragment_delay=5"))
                await client.read()
            await sim.wait(lambda: sim.open_connections == 0)
            assert sim.requests[0].ended_how in ("client_reset", "client_fin")

    run(story)


def test_a_reset_waits_until_the_kernel_has_everything() -> None:
    """Also of a body larger than the send buffer."""

    async def story() -> None:
        async with Simulator() as sim:
            size = 8_000_000
            script = f"big=20000000 cut.after_bytes={size} cut.how=rst"
            data, how = await exchange(sim, request(script))
            assert (len(data), how) == (size, "rst")

    run(story)
