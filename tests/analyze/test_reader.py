"""proxy/analyze/reader.py: records from files, whole or as they grow."""

import gzip
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.analyze.reader import BadLine, Line, follow, follow_lines, parse, read, read_lines
from proxy.record import Record, to_json
from tests.records import record

SECOND = 1_000_000_000
NO_STDIN = io.BytesIO()


def line(number: int | str, **changes: object) -> bytes:
    return to_json(record(request_id=str(number), **changes)) + b"\n"


def ids(entries: "list[Record | BadLine]") -> list[str]:
    return [one.request_id if isinstance(one, Record) else one.reason for one in entries]


def test_a_whole_file(tmp_path: Path) -> None:
    """Every record; lines that are none say where and why, and never what."""
    path = tmp_path / "log"
    newer = line(0).replace(b'{"schema":1', b'{"schema":7,"added":[]')
    foreign = b'{"schema":8,"shape":"quite another"}\n'
    noise = [b"\n", b"garbage sk-secret\n", newer, foreign, b"[]\n", b"\xff\xfe\x00\n", b"12\n"]
    path.write_bytes(line(1) + b"".join(noise) + line(2) + line(3)[:-40])
    found = list(read([str(path)], NO_STDIN))
    assert ids(found) == [
        "1",
        "not a record",
        "a record of schema 7; this version reads schema 1",
        "a record of schema 8; this version reads schema 1",
        "not a record",
        "not a record",
        "not a record",
        "2",
        "the line breaks off",
    ]
    assert found[1] == BadLine(str(path), 3, "not a record")
    assert "secret" not in repr([one for one in found if isinstance(one, BadLine)])


def test_a_last_line_without_newline_counts_when_it_is_whole(tmp_path: Path) -> None:
    """Other programs cut the last newline off."""
    path = tmp_path / "log"
    path.write_bytes(line(1) + line(2).rstrip())
    assert ids(list(read([str(path)], NO_STDIN))) == ["1", "2"]


def test_unknown_fields_are_no_fault() -> None:
    """A later version of the same schema may say more."""
    more = line(1).replace(b'{"schema":1', b'{"schema":1,"later":{"x":[1]}')
    assert isinstance(parse(Line("f", 1, more)), Record)


def test_several_files_compressed_ones_and_stdin(tmp_path: Path) -> None:
    """gzip is recognised by what is in the file, whatever its name; "-" is stdin."""
    plain, zipped = tmp_path / "a", tmp_path / "b"
    plain.write_bytes(line(1))
    zipped.write_bytes(gzip.compress(line(2) + line("long", model="m" * 200_000)))
    found = read([str(plain), str(zipped), "-"], io.BytesIO(line(3)))
    assert ids(list(found)) == ["1", "2", "long", "3"]


def test_a_compressed_file_that_breaks_off(tmp_path: Path) -> None:
    """What was readable is read; then one bad line."""
    path = tmp_path / "log.gz"
    whole = gzip.compress(b"".join(line(n) for n in range(50)))
    path.write_bytes(whole[:-20])
    found = ids(list(read([str(path)], NO_STDIN)))
    assert found[-1] == "the compressed file breaks off"
    assert found[:-1] == [str(n) for n in range(len(found) - 1)]
    path.write_bytes(whole + b"trailing garbage")
    assert ids(list(read([str(path)], NO_STDIN)))[-1] == "the compressed file breaks off"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The caller is told by an OSError."""
    with pytest.raises(FileNotFoundError):
        list(read_lines([str(tmp_path / "none")], NO_STDIN))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_a_bad_line(data: bytes) -> None:
    """Garbage in, no exception out."""
    for one in read(["-"], io.BytesIO(data)):
        assert isinstance(one, BadLine)
    assert isinstance(parse(Line("f", 1, b'{"schema":' + data)), BadLine)


class Story:
    """Follows files while a script of steps changes them.

    Each idle look plays one step: an action, or a number of seconds in which only time passes.
    """

    def __init__(self, *steps: Callable[[], object] | float) -> None:
        self._steps: Iterator[Callable[[], object] | float] = iter(steps)
        self._now = 0

    def clock(self) -> int:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += int(seconds * SECOND)
        step = next(self._steps, None)
        if step is None:
            raise StoryOver
        if callable(step):
            step()
        else:
            self._now += int(step * SECOND)

    def follow(self, *files: Path, last: int | None = None) -> "list[Record | BadLine]":
        found: list[Record | BadLine] = []
        entries = follow(
            [str(file) for file in files], clock=self.clock, sleep=self.sleep, last=last
        )
        with pytest.raises(StoryOver):
            found.extend(entries)
        return found


class StoryOver(Exception):  # noqa: N818  # not an error: the script has ended
    pass


def append(path: Path, data: bytes) -> Callable[[], None]:
    def step() -> None:
        with path.open("ab") as file:
            file.write(data)

    return step


def test_follow_waits_for_the_newline(tmp_path: Path) -> None:
    """A record that arrives in three pieces is one record, as soon as it is whole."""
    path = tmp_path / "log"
    path.write_bytes(line(1) + line(2)[:10])
    story = Story(append(path, line(2)[10:-1]), append(path, b"\n" + line(3)), append(path, b"x"))
    assert ids(story.follow(path)) == ["1", "2", "3"]


def test_follow_starts_with_the_last_lines(tmp_path: Path) -> None:
    """The last n whole lines, then what comes; line numbers are those of the file."""
    path = tmp_path / "log"
    path.write_bytes(b"".join(line(n) for n in range(1, 1001)))
    assert ids(Story(append(path, line("new"))).follow(path, last=2)) == ["999", "1000", "new"]
    assert ids(Story(append(path, line("x"))).follow(path, last=0)) == ["x"]
    assert len(Story().follow(path, last=5000)) == 1002
    path.write_bytes(b"".join(line(n, model="m" * 200_000) for n in range(12)) + b"torn")
    bad = Story(append(path, b"\n")).follow(path, last=1)
    assert ids(bad) == ["11", "not a record"]
    assert bad[1] == BadLine(str(path), 13, "not a record")


def test_follow_a_file_that_comes_later(tmp_path: Path) -> None:
    """From its beginning, also when only the end was asked for."""
    path = tmp_path / "log"
    assert ids(Story(append(path, line(1) + line(2))).follow(path, last=0)) == ["1", "2"]


def test_follow_through_rename_and_create(tmp_path: Path) -> None:
    """The writer still holds the old file for a second: its lines come, and come first."""
    path, old = tmp_path / "log", tmp_path / "log.1"
    path.write_bytes(line(1))

    def rotate() -> None:
        append(path, line(2))()
        path.rename(old)
        path.touch()

    story = Story(
        rotate,
        append(old, line(3)),
        lambda: (append(old, line(4))(), append(path, line(5))()),
    )
    assert ids(story.follow(path)) == ["1", "2", "3", "4", "5"]


def test_follow_gives_a_renamed_file_up(tmp_path: Path) -> None:
    """After the time in which every writer has noticed; a torn last line is reported then."""
    path, old = tmp_path / "log", tmp_path / "log.1"
    path.write_bytes(line(1) + b'{"torn')
    story = Story(
        lambda: (path.rename(old), path.write_bytes(line(2))),
        4.0,
        append(old, line("nobody writes here any more")),
        0.0,
    )
    assert ids(story.follow(path)) == ["1", "2", "the line breaks off"]


def test_follow_a_removed_file(tmp_path: Path) -> None:
    """Removed and, later, made again: read from its beginning."""
    path = tmp_path / "log"
    path.write_bytes(line(1))
    story = Story(path.unlink, 0.0, append(path, line(2)))
    assert ids(story.follow(path, last=0)) == ["2"]


def test_follow_through_truncation(tmp_path: Path) -> None:
    """copytruncate: what follows is read from the beginning, line numbers start again."""
    path = tmp_path / "log"
    path.write_bytes(line(1) + line(2) + b"half")
    story = Story(lambda: os.truncate(path, 0), append(path, b"noise\n" + line(3)))
    found = story.follow(path)
    assert ids(found) == ["1", "2", "not a record", "not a record", "3"]
    assert found[3] == BadLine(str(path), 1, "not a record")


def test_follow_several_files(tmp_path: Path) -> None:
    """Merged as they come."""
    a, b = tmp_path / "a", tmp_path / "b"
    story = Story(append(a, line("a1")), append(b, line("b1")), append(a, line("a2")))
    assert ids(story.follow(a, b)) == ["a1", "b1", "a2"]


def test_follow_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """At the start, by an OSError; a folder is no log."""
    with pytest.raises(OSError, match="directory"):
        Story().follow(tmp_path)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 2000), max_size=8), st.integers(0, 4))
def test_any_pieces_give_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], last: int
) -> None:
    """However a file grows, the same lines come out."""
    path = tmp_path_factory.mktemp("pieces") / "log"
    data = b"".join(line(n, msg="m" * (n * 100)) for n in range(4))
    path.write_bytes(data[: sum(cuts[:1])])
    steps = [append(path, data[sum(cuts[:n]) : sum(cuts[: n + 1])]) for n in range(1, len(cuts))]
    steps.append(append(path, data[max(sum(cuts[:1]), sum(cuts)) :]))
    there = path.read_bytes().count(b"\n")
    found = Story(*steps).follow(path, last=last)
    assert ids(found) == [str(n) for n in range(max(0, there - last), 4)]


def test_follow_lines_come_in_looks(tmp_path: Path) -> None:
    """What one look found comes as one list; a look that found nothing gives none."""
    path = tmp_path / "log"
    path.write_bytes(line(1) + line(2))
    looks = follow_lines([str(path)], clock=lambda: 0, sleep=lambda _: None)
    assert [one.number for one in next(looks)] == [1, 2]
    append(path, line(3))()
    assert [one.number for one in next(looks)] == [3]
    looks.close()  # type: ignore[attr-defined]  # a generator
