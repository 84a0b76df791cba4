"""What is in a capture file."""

import struct

import pytest

from tests.lab.capture import exchanges, packets
from tests.lab.plan import trace_id
from tests.lab.test_packets import packet

PORT = 80
TRACE = trace_id(1, "one"), trace_id(2, "two")


def pcap(*found: tuple[int, bytes], magic: int = 0xA1B23C4D, link: int = 1) -> bytes:
    """A capture file: instants in ns and IP packets."""
    unit = 1 if magic == 0xA1B23C4D else 1000
    data = struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 1 << 18, link)
    for at, ip in found:
        seconds, rest = divmod(at, 1_000_000_000)
        data += struct.pack("<IIII", seconds, rest // unit, len(ip) + 14, len(ip) + 14)
        data += bytes(14) + ip
    return data


def up(sequence: int, payload: bytes, port: int = 7) -> bytes:
    """From a client to the server."""
    return packet(port, PORT, sequence, payload=payload)


def down(sequence: int, payload: bytes, port: int = 7) -> bytes:
    """From the server to a client."""
    return packet(PORT, port, sequence, payload=payload)


def request(number: int) -> bytes:
    """A request's head."""
    return f"POST / HTTP/1.1\r\ntraceparent: 00-{TRACE[number]}-0-01\r\n\r\n".encode()


def test_instants_in_ns_and_in_us() -> None:
    """Both magic numbers; another one, or another link type, is refused."""
    at = 5_000_000_123_000
    for magic in (0xA1B23C4D, 0xA1B2C3D4):
        assert list(packets(pcap((at, b"ip"), magic=magic))) == [(at, b"ip")]
    with pytest.raises(ValueError, match="not a pcap"):
        list(packets(pcap(magic=1)))
    with pytest.raises(ValueError, match="link type 101"):
        list(packets(pcap(link=101)))


def test_a_file_that_is_cut_gives_what_is_whole() -> None:
    """tcpdump is stopped in the middle of its work."""
    data = pcap((1, b"one"), (2, b"two"))
    assert len(list(packets(data[:-20]))) == 1


def test_exchanges_on_one_connection_and_on_two() -> None:
    """Bodies in several packets, repeated packets, two requests in turn, a connection beside."""
    first, second = request(0), request(1)
    found = exchanges(
        pcap(
            (1, up(0, first)),
            (2, up(100, b"body")),
            (3, up(100, b"body")),
            (4, down(0, b"HTTP")),
            (5, up(0, b"no trace", port=8)),
            (6, down(4, b"/1.1")),
            (7, down(0, b"HTTP")),
            (8, up(104, second)),
            (9, down(8, b"again")),
        ),
        PORT,
    )
    one, two = (found[trace] for trace in TRACE)
    assert (one.sent_at, one.reads, one.data) == (2, [(4, 4), (6, 4)], b"HTTP/1.1")
    assert (two.sent_at, two.reads, two.data) == (8, [(9, 5)], b"again")
