"""The vocabulary of a plan."""

from dataclasses import FrozenInstanceError

import pytest

from proxy.simulate.step import Step


def test_a_step_is_a_value() -> None:
    """Plans are shared by all requests that ask the same, so nobody may change one."""
    step = Step(at=5, name="token")

    assert step == Step(at=5, name="token")
    with pytest.raises(FrozenInstanceError):
        step.at = 6  # type: ignore[misc] # that is the point
