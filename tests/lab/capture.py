"""Packets of one port as tcpdump saw them: capture, and what is in a capture file."""

import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.packets import before, segment

_NANOSECONDS, _MICROSECONDS = 0xA1B23C4D, 0xA1B2C3D4
_ETHERNET, _ETHERNET_HEAD = 1, 14
_TRACE = b"traceparent: 00-"


def why_not() -> str | None:
    """Why packets cannot be captured here; None when they can."""
    if shutil.which("tcpdump") is None:
        return "tcpdump is not installed (Debian: apt install tcpdump)"
    if os.geteuid() != 0:
        return "capturing packets needs root"
    return None


@contextmanager
def captured(port: int, file: Path) -> Iterator[None]:
    """Capture the TCP packets of a port on the loopback interface into `file`."""
    command = ["tcpdump", "-i", "lo", "-n", "-w", str(file), "-Z", "root", "-B", "65536"]
    command += ["--time-stamp-precision=nano", "--immediate-mode", "-s", "0"]
    with subprocess.Popen([*command, f"tcp port {port}"], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if b"listening on" in line:
                    break
            else:
                raise OSError("tcpdump does not start")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.stderr.read()
            process.wait()


def packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Instants (ns of the wall clock) and IP packets of a pcap file.

    Source: draft-ietf-opsawg-pcap. Raises `ValueError` for another format or link type.
    """
    for order in "<>":
        magic, link = struct.unpack_from(f"{order}I16xI", data)
        if magic in (_NANOSECONDS, _MICROSECONDS):
            break
    else:
        raise ValueError("not a pcap file")
    if link != _ETHERNET:
        raise ValueError(f"link type {link} is not Ethernet")
    unit = 1 if magic == _NANOSECONDS else 1000
    at = 24
    while at + 16 <= len(data):
        seconds, part, size, _ = struct.unpack_from(f"{order}IIII", data, at)
        at += 16
        yield seconds * 1_000_000_000 + part * unit, data[at + _ETHERNET_HEAD : at + size]
        at += size


@dataclass(slots=True)
class Exchange:
    """One request and its response on a captured connection."""

    head: bytes = b""
    """The first segment of the request."""
    sent_at: int = 0
    """The packet with the last byte of the request."""
    reads: list[tuple[int, int]] = field(default_factory=list)
    """Packets of the response: instant, bytes."""
    data: bytes = b""


def exchanges(data: bytes, port: int) -> Mapping[str, Exchange]:
    """What a capture holds of the server at `port`, by the trace id in the request's head."""
    open_now: dict[int, Exchange] = {}
    ends: dict[tuple[int, int], int] = {}
    found: dict[str, Exchange] = {}
    for at, packet in packets(data):
        one = segment(packet)
        if one is None or not one.payload:
            continue
        end = ends.get((one.source, one.target))
        if end is not None and not before(end, one.end):
            continue
        ends[one.source, one.target] = one.end
        if one.target == port:
            current = open_now.get(one.source)
            if current is None or current.reads:
                current = open_now[one.source] = Exchange(one.payload)
                found[_trace(one.payload)] = current
            current.sent_at = at
        elif (current := open_now.get(one.target)) is not None:
            current.reads.append((at, len(one.payload)))
            current.data += one.payload
    return found


def _trace(head: bytes) -> str:
    return head.partition(_TRACE)[2][:32].decode("latin-1")
