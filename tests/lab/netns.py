"""Two network namespaces joined by a user-space link. Needs root and Linux.

Addresses (192.0.2.0/24, RFC 5737) and devices exist inside the namespaces alone; both are gone at
the end.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import msgspec

from tests.lab.link import LinkReport
from tests.lab.processes import ROOT

NEAR, FAR = "192.0.2.1", "192.0.2.2"
_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x1001
_IFNAMSIZ = 16
_DEVICE = "/dev/net/tun"


def why_not() -> str | None:
    """Why there can be no namespaces here; None when there can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.path.exists(_DEVICE):
        return f"there is no {_DEVICE}"
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not installed"
    probe = f"ttftlab{os.getpid()}p"
    tried = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    if tried.returncode:
        return "network namespaces cannot be made here: " + tried.stderr.decode().strip()
    _ip("netns", "del", probe)
    return None


@dataclass
class Link:
    """A link while it forwards. `report` is there at its end."""

    report: LinkReport | None = field(default=None)


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The two sides. `near` and `far` go before a command to run it there."""

    near: tuple[str, ...]
    far: tuple[str, ...]
    devices: tuple[int, int]

    @contextmanager
    def link(self, *, rtt_ms: float, loss: float, seed: int) -> Iterator[Link]:
        """Forward packets, each half a round trip later, a share of them lost, both ways."""
        near, far = self.devices
        arguments = [str(near), str(far), str(rtt_ms / 2), str(loss), str(seed)]
        with subprocess.Popen(
            [sys.executable, "-m", "tests.lab.link", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=self.devices,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            this = Link()
            try:
                yield this
                process.stdin.write(b"end\n")
                process.stdin.close()
                this.report = msgspec.msgpack.decode(process.stdout.read(), type=LinkReport)
            finally:
                process.terminate()


@contextmanager
def namespaces() -> Iterator[Namespaces]:
    """Make both, and unmake them. Raises `OSError` or `CalledProcessError` when it cannot."""
    with ExitStack() as stack:
        sides = []
        for side, address in (("n", NEAR), ("f", FAR)):
            name = f"ttftlab{os.getpid()}{side}"
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            device = _device(name)
            stack.callback(os.close, device)
            _ip("link", "set", name, "netns", name)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
            _ip("-n", name, "link", "set", name, "txqueuelen", "10000", "up")
            sides.append((("ip", "netns", "exec", name), device))
        (near, one), (far, other) = sides
        yield Namespaces(near, far, (one, other))


def _device(name: str) -> int:
    """An open TUN device (Linux Documentation/networking/tuntap)."""
    number = os.open(_DEVICE, os.O_RDWR)
    assert len(name) < _IFNAMSIZ
    request = struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER)
    try:
        fcntl.ioctl(number, _TUNSETIFF, request)
    except OSError:
        os.close(number)
        raise
    return number


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
