"""Sets structured logging up: for eyes on a terminal, as JSON lines otherwise, with secrets left out."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog

# Names that end in the word for a secret: `api_key` does, `keyboard` and `tokens_per_second` do not.
SECRET = re.compile(
    r"(?:^|[_\-.])(?:token|authorization|api_?key|key|secret|password|cookie)$", re.IGNORECASE
)
REDACTED = "[redacted]"
BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]+")


def configure_logs(*, level: str, format_name: str, stream: TextIO | None = None) -> None:
    """Sets structlog up for this process; called once by a composer.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        format_name: `console`, `json`, or `auto`, which asks whether the stream is a terminal.
        stream: where the lines go; None means standard error.
    """
    stream = sys.stderr if stream is None else stream
    console = format_name == "console" or (format_name == "auto" and stream.isatty())
    renderers: list[Any] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            redact,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: hides values by the name of their key, and bearer tokens in any text."""
    for key, value in event.items():
        event[key] = REDACTED if SECRET.search(str(key)) else _redacted(value)
    return event


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return BEARER.sub(rf"\1{REDACTED}", value)
    if isinstance(value, Mapping):
        return {
            key: REDACTED if SECRET.search(str(key)) else _redacted(inner) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(inner) for inner in value]
    return value
