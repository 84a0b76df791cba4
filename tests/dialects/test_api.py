"""The vocabulary of dialects: how usage statements add up to one."""

from proxy.dialects import Usage


def test_the_last_value_of_a_field_wins() -> None:
    """Output counts grow; a missing field leaves the earlier value."""
    first, second = Usage(output=1, reasoning=5), Usage(input=9, output=3)

    assert first.merged(second) == Usage(input=9, output=3, reasoning=5)


def test_prompt_counts_do_not_shrink() -> None:
    """A later statement that leaves out the cache share does not hide it."""
    assert Usage(input=2530, cached=2000).merged(Usage(input=30, output=7)) == Usage(
        input=2530, cached=2000, output=7
    )
    assert Usage(input=0).merged(Usage(input=30)) == Usage(input=30)
