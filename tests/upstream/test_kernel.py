"""What the kernel says of a socket."""

import socket
import struct
import sys

import pytest

from proxy.upstream.kernel import KernelSample, sample
from tests.support import Peer, run
from tests.upstream.calls import OK, always, ask, listening, to

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is Linux's")


class Answers:
    """A socket whose TCP_INFO is given."""

    def __init__(self, info: bytes | OSError) -> None:
        self.info = info

    def getsockopt(self, *_args: int) -> bytes:
        if isinstance(self.info, OSError):
            raise self.info
        return self.info


@on_linux
def test_fields_are_read_where_linux_puts_them() -> None:
    """Offsets of struct tcp_info: mss 16, rtt 68, retransmits 100, min rtt 148, busy 168."""
    info = bytearray(192)
    for at, value in ((16, 1460), (68, 1200), (100, 3), (148, 900)):
        struct.pack_into("=I", info, at, value)
    struct.pack_into("=Q", info, 168, 77_000)
    assert sample(Answers(bytes(info))) == KernelSample(
        rtt_us=1200, min_rtt_us=900, busy_us=77_000, retransmits=3, mss=1460
    )


@pytest.mark.parametrize("info", [b"", b"\0" * 104, OSError(9, "Bad file descriptor")])
def test_what_is_not_there_is_unknown(info: bytes | OSError) -> None:
    """An old kernel, a closed socket: None, never zeros."""
    assert sample(Answers(info)) is None


def test_a_closed_socket_is_unknown() -> None:
    """A real one."""
    sock = socket.socket()
    sock.close()
    assert sample(sock) is None


@on_linux
def test_a_call_is_sampled_at_its_head_and_at_its_end() -> None:
    """Through the event loop's own socket object; the next call begins where this one ended."""

    async def story() -> None:
        async with listening(always(OK)) as server, to(server.port) as upstream:
            first = (await ask(upstream)).facts
            second = (await ask(upstream)).facts
        for facts in (first, second):
            assert facts.kernel_at_head is not None
            assert facts.kernel_at_end is not None
            assert 0 < facts.kernel_at_head.min_rtt_us < 5_000_000
            assert facts.kernel_at_head.busy_us <= facts.kernel_at_end.busy_us
        assert second.kernel_before == first.kernel_at_end

    run(story())


@on_linux
def test_a_lost_connection_has_no_sample() -> None:
    """The head was sampled, the end was not."""

    async def eof(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")

    async def story() -> None:
        async with listening(eof) as server, to(server.port) as upstream:
            facts = (await ask(upstream)).facts
        assert facts.kernel_at_head is not None

    run(story())
