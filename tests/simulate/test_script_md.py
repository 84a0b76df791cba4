"""SCRIPT.md: every field is in it, and every example can be played."""

import json
import re
from pathlib import Path

import pytest

import proxy.simulate
from proxy.simulate.book import Book, read_book
from proxy.simulate.script import Script, read_script

from .plans import planned

TEXT = (Path(proxy.simulate.__file__).parent / "SCRIPT.md").read_text()
EXAMPLES = re.findall(r"```(json|text) script\n(.*?)```", TEXT, re.DOTALL)
BOOKS = re.findall(r"```json book\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_every_example_can_be_played(kind: str, text: str) -> None:
    """In its own notation, streamed and whole."""
    if kind == "json":
        json.loads(text)
    script = read_script(text)

    assert script != Script()
    assert planned(script).steps
    assert planned(script, stream=False).steps


def test_the_two_notations_of_the_first_example_agree() -> None:
    """As the text says."""
    (_, first), (_, second) = EXAMPLES[:2]

    assert read_script(first) == read_script(second)


@pytest.mark.parametrize("text", BOOKS)
def test_every_script_file_can_be_read(text: str) -> None:
    """And its names are found."""
    book = Book(read_book(text))

    assert book.find("sim-slow").prefill == 900
    assert book.find("whatever").tokens == 3


@pytest.mark.parametrize("name", Script.__struct_fields__)
def test_every_field_is_documented(name: str) -> None:
    """By its name."""
    assert f"`{name}`" in TEXT
