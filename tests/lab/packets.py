"""What this laboratory reads of IPv4 and TCP packets (RFC 791, RFC 9293). Pure."""

import struct
from typing import NamedTuple

SYN, FIN = 0x02, 0x01
_TCP = 6
_MODULUS = 1 << 32


class Segment(NamedTuple):
    """One TCP segment."""

    source: int
    """Port."""
    target: int
    """Port."""
    sequence: int
    length: int
    """Sequence numbers taken: the payload, one for SYN, one for FIN."""
    payload: bytes

    @property
    def end(self) -> int:
        """The sequence number behind it."""
        return (self.sequence + self.length) % _MODULUS


def segment(packet: bytes) -> Segment | None:
    """The segment in an IPv4 packet; None for everything else."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != _TCP:
        return None
    size = struct.unpack_from("!H", packet, 2)[0] or len(packet)
    start = (packet[0] & 15) * 4
    source, target, sequence = struct.unpack_from("!HHI", packet, start)
    flags = packet[start + 13]
    payload = packet[start + (packet[start + 12] >> 4) * 4 : size]
    length = len(payload) + bool(flags & SYN) + bool(flags & FIN)
    return Segment(source, target, sequence, length, payload)


def before(one: int, other: int) -> bool:
    """Whether sequence number `one` lies before `other`; they wrap around."""
    return 0 < (other - one) % _MODULUS < _MODULUS >> 1


class Resent:
    """Counts the segments of one direction that had been seen before."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, int], int] = {}
        self.counts: dict[int, int] = {}
        """By source port."""

    def see(self, packet: bytes) -> None:
        """A packet enters the link."""
        one = segment(packet)
        if one is None or not one.length:
            return
        flow = (one.source, one.target)
        furthest = self._ends.get(flow)
        if furthest is None or before(furthest, one.end):
            self._ends[flow] = one.end
        else:
            self.counts[one.source] = self.counts.get(one.source, 0) + 1
