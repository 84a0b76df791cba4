"""The forwarder, without devices and without waiting."""

import os
import socket
import threading

from hypothesis import given
from hypothesis import strategies as st

from tests.lab.link import LinkReport, Wire, forward


@given(st.lists(st.integers(0, 50)), st.integers(0, 100))
def test_packets_leave_in_order_and_never_early(gaps: list[int], delay: int) -> None:
    """Each of them `delay` after it entered."""
    wire, now, due = Wire(delay, 0.0, 1), 0, []
    for number, gap in enumerate(gaps):
        now += gap
        wire.enter(bytes([number]), now)
        due.append((now + delay, bytes([number])))
    left = []
    for instant in range(now + delay + 1):
        assert wire.next_at is None or wire.next_at >= instant
        arrived = wire.leave(instant)
        assert all(at == instant for at, _ in arrived)
        left += arrived
    assert left == due
    assert wire.next_at is None


def test_loss_is_about_the_share_that_was_asked_for() -> None:
    """And the same for the same seed."""
    lost = []
    for _ in range(2):
        wire = Wire(0, 0.02, 7)
        for _ in range(10_000):
            wire.enter(b"x", 0)
        assert wire.carried + wire.dropped == 10_000
        lost.append(wire.dropped)
    assert lost[0] == lost[1]
    assert 120 < lost[0] < 280


def test_both_directions_are_forwarded_until_told_to_stop() -> None:
    """Datagram sockets stand in for the devices."""
    near, near_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    far, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    stop, say_stop = os.pipe()
    reports: list[LinkReport] = []

    def run() -> None:
        reports.append(
            forward(near_end.fileno(), far_end.fileno(), stop, delay_ns=1_000_000, loss=0.0, seed=1)
        )

    thread = threading.Thread(target=run)
    thread.start()
    near.settimeout(20)
    far.settimeout(20)
    near.send(b"ping")
    assert far.recv(100) == b"ping"
    far.send(b"pong")
    assert near.recv(100) == b"pong"
    os.write(say_stop, b"x")
    thread.join(20)
    (report,) = reports
    assert (report.carried, report.dropped, report.resent) == ((1, 1), (0, 0), {})
    for one in (near, near_end, far, far_end):
        one.close()
    os.close(stop)
    os.close(say_stop)
