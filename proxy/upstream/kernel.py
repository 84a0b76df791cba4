"""What the kernel knows of a TCP connection: `TCP_INFO`, where it exists (Linux).

Source: `struct tcp_info` in Linux include/uapi/linux/tcp.h; the structure only ever grows at its
end, so an older kernel returns a shorter one.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Any

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_RTT = struct.Struct("=I")
_TOTAL_RETRANS = 100
_RTT_AT = 68
_MIN_RTT_AT = 148
_BUSY_AT = 168
_SIZE = 176
_MSS_AT = 16


@dataclass(frozen=True, slots=True)
class KernelSample:
    """One reading. Microseconds; counters grow for the life of the connection."""

    rtt_us: int
    min_rtt_us: int
    busy_us: int
    """Time during which sent bytes were not yet acknowledged."""
    retransmits: int
    mss: int


def sample(sock: Any) -> KernelSample | None:
    """Read `TCP_INFO` of `sock`; None where the kernel has none or the socket is gone."""
    if _TCP_INFO is None:
        return None
    try:
        info: bytes = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 192)
    except (OSError, ValueError):
        return None
    if len(info) < _SIZE:
        return None
    return KernelSample(
        rtt_us=_RTT.unpack_from(info, _RTT_AT)[0],
        min_rtt_us=_RTT.unpack_from(info, _MIN_RTT_AT)[0],
        busy_us=struct.unpack_from("=Q", info, _BUSY_AT)[0],
        retransmits=_RTT.unpack_from(info, _TOTAL_RETRANS)[0],
        mss=_RTT.unpack_from(info, _MSS_AT)[0],
    )
