"""proxy/serve/operator.py: what a person reads on stderr."""

import io
import logging
from collections.abc import Iterator

import pytest

from proxy.serve.operator import operator_log, route_logging


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """The standard library's logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("uvicorn.access", "httpx", "httpcore"):
        logging.getLogger(name).disabled = False


def test_one_line_per_message() -> None:
    """Warnings say so; values follow; nothing breaks the line or reaches the terminal's control."""
    out = io.StringIO()
    log = operator_log(out)
    log.info("listening", url="http://127.0.0.1:8787")
    log.warning("records are\ndropped", count=3)
    log.error("\x1b[31mred")
    log.debug("not for people")
    assert out.getvalue() == (
        "ttft: listening  url=http://127.0.0.1:8787\n"
        "ttft: warning: records are dropped  count=3\n"
        "ttft: error:  [31mred\n"
    )


def test_an_exception_is_its_class() -> None:
    """Its text may quote what must not be shown."""
    out = io.StringIO()
    log = operator_log(out)
    log.error("relay failed", error=ValueError("sk-secret"))
    log.error("relay failed", error="ReadTimeout")
    assert out.getvalue() == (
        "ttft: error: relay failed  error=ValueError\n"
        "ttft: error: relay failed  error=ReadTimeout\n"
    )


def test_a_closed_stderr_is_no_reason_to_stop() -> None:
    """Nothing is raised."""
    out = io.StringIO()
    log = operator_log(out)
    out.close()
    log.warning("nobody reads this")


def test_warnings_of_the_standard_library(restored_logging: None) -> None:
    """uvicorn's and asyncio's warnings are single lines without tracebacks, URLs or arguments."""
    out = io.StringIO()
    route_logging(operator_log(out))
    try:
        raise RuntimeError("sk-secret")
    except RuntimeError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("asyncio").warning("Executing %s took %.3f seconds", "sk-secret", 1.0)
    logging.getLogger("uvicorn.access").warning("GET /?key=sk-secret")
    logging.getLogger("httpx").warning("GET /?key=sk-secret")
    assert out.getvalue() == (
        "ttft: error: Exception in ASGI application  source=uvicorn.error  error=RuntimeError\n"
        "ttft: warning: Executing %s took %.3f seconds  source=asyncio\n"
    )
