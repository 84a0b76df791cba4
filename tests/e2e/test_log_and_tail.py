"""The log as it is written, rotated and followed: every record arrives, once and whole."""

from pathlib import Path

import pytest

from proxy.analyze.reader import BadLine, follow
from proxy.record import Record
from proxy.serve.log import RecordLog
from tests.records import record

SECOND = 1_000_000_000


class Over(Exception):  # noqa: N818  # not an error: the story has ended
    pass


@pytest.mark.parametrize("made_by", ["logrotate", "writer"])
def test_two_writers_rotation_and_a_follower(tmp_path: Path, made_by: str) -> None:
    """Two workers write ten records a second each, the file is renamed every three seconds and
    made again by logrotate or by the first writer that notices; `tail` follows. One clock for
    all of them."""
    path = tmp_path / "ttft.jsonl"
    now = 0

    def clock() -> int:
        return now

    said: list[str] = []
    writers = [RecordLog(str(path), announce=said.append, clock=clock) for _ in range(2)]
    written = 0
    looks = 0

    def sleep(_seconds: float) -> None:
        """Between two looks of the follower a tenth of a second passes."""
        nonlocal now, written, looks
        now += SECOND // 10
        looks += 1
        if looks > 200:
            raise Over
        if looks <= 150:
            for writer in writers:
                writer.emit(record(request_id=str(written), msg="m" * (written % 50)))
                assert writer.flush(10)
                written += 1
        if looks % 30 == 0 and looks < 150:
            path.rename(tmp_path / f"ttft.jsonl.{looks}")
            if made_by == "logrotate":
                path.touch()

    found: list[Record | BadLine] = []
    with pytest.raises(Over):
        found.extend(follow([str(path)], clock=clock, sleep=sleep))
    for writer in writers:
        assert writer.close(10)
        assert writer.dropped == 0
    assert said == []
    assert all(isinstance(one, Record) for one in found)
    numbers = [int(one.request_id) for one in found if isinstance(one, Record)]
    assert sorted(numbers) == list(range(written))
