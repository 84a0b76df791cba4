"""What the proxy says to the person who runs it: single lines on stderr, through structlog.

Rules: no traceback and no text of an exception (it may quote what must not be shown), only its
class; no control characters; a closed stderr is no reason to stop.
"""

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO

import structlog

_PROBLEM = ("warning", "error", "critical")
_ENDINGS = ("Cancel %s running task(s)", "Exception in 'lifespan' protocol")
"""What uvicorn says when requests are cut at a shutdown: meant, announced, and in the records."""
_SILENT = ("uvicorn.access", "httpx", "httpcore")
"""Loggers whose lines quote targets or addresses."""


def operator_log(stream: TextIO | None = None) -> structlog.typing.FilteringBoundLogger:
    """A logger that writes `ttft: message  key=value` lines to `stream`, or else to stderr.

    Warnings and errors say so in front of the message. An exception in `error` or `exc_info` is
    shown as its class.
    """
    log: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        _Lines(stream or sys.stderr),
        processors=[_one_line],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )
    return log


def route_logging(log: structlog.typing.FilteringBoundLogger) -> None:
    """Send warnings of the standard library's loggers (uvicorn, asyncio) through `log`.

    Replaces the handlers of the root logger; access logs and HTTP client logs are silenced.
    """
    logging.basicConfig(handlers=[_ToOperator(log)], level=logging.WARNING, force=True)
    for name in _SILENT:
        logging.getLogger(name).disabled = True


class _Lines:
    """What structlog wraps: one line per call, whatever the level."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


def _one_line(_logger: object, level: str, event: MutableMapping[str, Any]) -> str:
    message = event.pop("event", "")
    cause = event.pop("exc_info", None)
    error = event.pop("error", None) or (cause[1] if isinstance(cause, tuple) else cause)
    parts = [f"ttft: {level}: {message}" if level in _PROBLEM else f"ttft: {message}"]
    parts += [f"{key}={value}" for key, value in event.items()]
    if isinstance(error, BaseException):
        parts.append(f"error={type(error).__name__}")
    elif isinstance(error, str):
        parts.append(f"error={error}")
    return "".join(character if character.isprintable() else " " for character in "  ".join(parts))


class _ToOperator(logging.Handler):
    """Hands the standard library's messages to structlog: the first line, the class of errors."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "uvicorn.error" and str(record.msg).startswith(_ENDINGS):
            return
        with suppress(Exception):
            # The format, not what is filled in: arguments may quote requests.
            message = str(record.msg).strip().partition("\n")[0]
            level = "error" if record.levelno >= logging.ERROR else "warning"
            getattr(self._log, level)(message, source=record.name, exc_info=record.exc_info)
