"""Where the plane's log goes when it runs as a process of its own."""

from __future__ import annotations

import sys

import structlog


def log_to_stderr() -> None:
    """Sets structlog up for this process: lines for eyes on a terminal, JSON lines otherwise."""
    on_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if on_terminal else [structlog.processors.format_exc_info]),
            structlog.dev.ConsoleRenderer()
            if on_terminal
            else structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
