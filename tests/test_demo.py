"""`ttft demo`: what was planted is found, from the log alone, and it fits a terminal."""

import subprocess
import sys

import pytest

from proxy.demo import REQUESTS


@pytest.fixture(scope="module")
def shown() -> str:
    """What the demo prints into a pipe."""
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "demo", "--color", "never"],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def account_of(shown: str, planted: str) -> str:
    """What is shown of the request in which `planted` was planted, on one line."""
    start = shown.index(f"planted: {planted}")
    end = shown.find("\n---", start)
    return " ".join(shown[start : end if end > 0 else None].split())


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("a queue that shows in when the head leaves", "went by in the upstream's queue"),
        ("a queue that the engine reports", "queue, as vllm reports"),
        ("a cold start", "went into loading the model, as ollama reports"),
        ("a long prompt", "reading of the prompt (prefill), as llama.cpp reports"),
        ("a model that thinks before it answers", "Reasoning came first"),
        ("a slow server that says nothing about it", "which does not say on what"),
        ("a claim of 9 s of prefill", "preprocessing_time (conflict)"),
        ("a refusal because of a rate limit", "status 429"),
        ("an error inside a stream", "error inside a 200"),
        ("a connection that breaks", "broke the response off"),
        ("a client that gives up", "The client left"),
    ],
)
def test_each_request_says_in_a_sentence_what_was_slow(
    shown: str, planted: str, found: str
) -> None:
    """The segment that was planted, or that nobody can know it."""
    assert found in account_of(shown, planted)


def test_it_fits_into_eighty_columns(shown: str) -> None:
    """Every line but the one with the log's path, wherever that is."""
    lines = [line for line in shown.splitlines() if "ttft-demo-" not in line]
    assert [line for line in lines if len(line) > 80] == []
    assert shown.count("--- ") == len(REQUESTS)


def test_it_says_where_the_log_is_and_what_to_try_next(shown: str) -> None:
    """And the next command works on that log."""
    command = shown.split("Try ")[1].splitlines()[0].split()
    done = subprocess.run(
        [sys.executable, "-m", "proxy", *command[1:]],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert len(done.stdout.splitlines()) >= len(REQUESTS)
