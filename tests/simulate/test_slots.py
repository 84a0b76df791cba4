"""Slots: a bound, and who comes next."""

from proxy.simulate.slots import Slots


def test_without_a_limit_nobody_waits() -> None:
    """But it is counted how many are busy."""
    slots = Slots()

    assert all(slots.take(lambda: None) for _ in range(100))
    assert (slots.busy, slots.waiting) == (100, 0)


def test_whoever_waits_longest_comes_next() -> None:
    """And who gives up is passed over."""
    came: list[str] = []
    slots = Slots(1)

    def second() -> None:
        came.append("second")

    def third() -> None:
        came.append("third")

    assert slots.take(lambda: None)
    assert not slots.take(second)
    assert not slots.take(third)
    assert (slots.busy, slots.waiting) == (1, 2)

    slots.give_up(second)
    slots.release()
    assert came == ["third"]
    assert (slots.busy, slots.waiting) == (1, 0)

    slots.release()
    assert slots.busy == 0
    assert slots.take(second)
