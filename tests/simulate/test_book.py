"""The script file: scripts by name."""

import pytest

from proxy.simulate.book import PLAIN, Book, read_book
from proxy.simulate.script import Script, ScriptError

BOOK = Book(read_book('{"slow": {"prefill": 900}, "gpt-x": "gap=5", "*": {"tokens": 2}}'))


def test_a_model_finds_its_script() -> None:
    """By its name, by `sim-` and the name of a script, or else the one for all others."""
    assert Script(gap=5) == BOOK.find("gpt-x")
    assert Script(prefill=900) == BOOK.find("slow") == BOOK.find("sim-slow")
    assert Script(tokens=2) == BOOK.find("other") == BOOK.find(None) == BOOK.default


def test_without_a_script_for_all_others_there_is_the_plain_one() -> None:
    """An empty book answers at once."""
    assert Book().find("m") is PLAIN


def test_a_misspelt_name_is_told() -> None:
    """`sim-` asks for a script by name, so a wrong name is an error."""
    with pytest.raises(ScriptError, match=r"'slwo'; there are: slow, gpt-x, \*"):
        BOOK.find("sim-slwo")


@pytest.mark.parametrize("text", ["{", b"\xff", "[]", '{"a": 1}', '{"a": {"gap": "x"}}'])
def test_a_file_that_is_no_book_is_refused(text: str | bytes) -> None:
    """With the name of the script that is wrong, where there is one."""
    with pytest.raises(ScriptError):
        read_book(text)
