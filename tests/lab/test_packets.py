"""Segments, and what was sent again."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from tests.lab.packets import FIN, SYN, Resent, before, segment


def packet(
    source: int = 1, target: int = 2, sequence: int = 0, flags: int = 0, payload: bytes = b""
) -> bytes:
    """A TCP packet with options in both heads."""
    tcp = struct.pack("!HHIIBBHHH", source, target, sequence, 0, 8 << 4, flags, 9, 0, 0)
    tcp += b"\1" * 12 + payload
    ip = struct.pack("!BBHHHBBH4s4s", 0x46, 0, 24 + len(tcp), 1, 0, 64, 6, 0, b"\1" * 4, b"\2" * 4)
    return ip + b"\1" * 4 + tcp


def test_a_segment() -> None:
    """Ports, sequence numbers, payload; SYN and FIN take a number each; padding is none of it."""
    one = segment(packet(7, 8, 100, SYN | FIN, b"abc") + b"padding")
    assert one == (7, 8, 100, 5, b"abc")
    assert one.end == 105


@given(st.binary(max_size=80))
def test_anything_else_is_none_or_a_segment(data: bytes) -> None:
    """No packet makes it raise, as long as its head is whole."""
    if len(data) >= 40:
        data = bytes([0x45, data[1], 0, len(data), *data[4:]])
    segment(data)


def test_what_is_not_tcp_is_skipped() -> None:
    """UDP, IPv6, fragments of a head."""
    whole = bytearray(packet(payload=b"x"))
    assert segment(bytes(whole[:30])) is None
    whole[9] = 17
    assert segment(bytes(whole)) is None
    assert segment(b"\x60" + bytes(60)) is None


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**31 - 1))
def test_sequence_numbers_wrap_around(one: int, further: int) -> None:
    """RFC 9293 section 3.4."""
    assert before(one, (one + further) % 2**32)
    assert not before((one + further) % 2**32, one)
    assert not before(one, one)


def test_what_was_seen_before_is_counted_by_port() -> None:
    """New data and bare acknowledgements are not."""
    resent = Resent()
    for data in (
        packet(7, 9, 2**32 - 2, payload=b"abcd"),
        packet(7, 9, 2),
        packet(7, 9, 2, payload=b"ef"),
        packet(7, 9, 2**32 - 2, payload=b"abcd"),
        packet(8, 9, 2, payload=b"ef"),
        packet(7, 9, 2, payload=b"ef"),
        packet(7, 9, 4, payload=b"g"),
    ):
        resent.see(data)
    assert resent.counts == {7: 2}
