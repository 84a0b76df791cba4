"""The experiments themselves, small, for their correctness; nothing here judges a time."""

from pathlib import Path

import pytest

from tests.lab import __main__ as command
from tests.lab import capture, netns, shared, truth
from tests.lab.inprocess import Clocks
from tests.lab.marks import MARKS


def test_every_request_gets_its_differences(tmp_path: Path) -> None:
    """Through real processes: each record is found, and has every mark of its timetable."""
    found = truth.measure(tmp_path, 8)
    assert [sample.timetable.number for sample in found] == list(range(8))
    for sample in found:
        for side in (sample.recorded, sample.floor, sample.one_way):
            assert tuple(side) == MARKS
        assert sample.record.outcome == "ok"
    assert "8 requests" in truth.judge(found).markdown()


def test_clocks_that_misbehave_leave_the_durations_alone() -> None:
    """Steps of the wall clock and a machine that sleeps, before and after the first token."""
    rows, held = shared.clocks()
    assert len(rows) == len(shared.HAPPENINGS)
    assert held, rows


def test_a_sleeping_machine_has_a_clock_that_stands_still() -> None:
    """And goes on from there."""
    clocks = Clocks()
    clocks.sleep()
    asleep = clocks.monotonic()
    assert clocks.monotonic() == asleep
    clocks.wake()
    assert asleep <= clocks.monotonic()


def test_parts_that_cannot_run_say_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without root; skipping misses no goal and is not called success."""
    monkeypatch.setattr(netns, "why_not", lambda: "namespaces need root")
    monkeypatch.setattr(capture, "why_not", lambda: "capturing needs root")
    monkeypatch.setattr(command, "RESULTS", tmp_path / "RESULTS.md")
    assert command.main(["--only", "path,witness", "--write"]) == 0
    said = capsys.readouterr().out
    assert "Skipped, which is not passed: namespaces need root." in said
    assert "Skipped, which is not passed: capturing needs root." in said
    assert (tmp_path / "RESULTS.md").read_text() == said.replace("\n\n\n", "\n\n")


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names of those that exist."""
    with pytest.raises(SystemExit) as refused:
        command.main(["--only", "truht"])
    assert refused.value.code == 2
    assert "truth, path, witness, shared" in capsys.readouterr().err
