"""Log lines: JSON for programs, text for terminals, secrets for nobody."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from journeyman.adapters.logs import configure_logs


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def logged(level: str = "info", format_name: str = "json", **keys: object) -> str:
    """The text of one warning with these keys."""
    stream = io.StringIO()
    configure_logs(level=level, format_name=format_name, stream=stream)
    structlog.get_logger("x").warning("heartbeat_sent", **keys)
    return stream.getvalue()


def test_a_json_line_has_event_level_time_and_keys() -> None:
    """One object a line, with the time in UTC; values that JSON lacks become text."""
    (line,) = logged(node_name="mac", error=ValueError("x")).splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["level"], entry["node_name"]) == ("heartbeat_sent", "warning", "mac")
    assert entry["timestamp"].endswith("Z")
    assert "x" in entry["error"]


def test_auto_is_json_where_nobody_looks() -> None:
    """A stream that is no terminal gets JSON; console is text on request."""
    assert json.loads(logged(format_name="auto"))["event"] == "heartbeat_sent"
    text = logged(format_name="console", node_name="mac")
    assert "heartbeat_sent" in text
    assert "node_name=mac" in text
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


def test_lines_below_the_level_are_left_out() -> None:
    """The setting decides how much is said."""
    assert logged(level="error") == ""
    assert logged(level="debug") != ""


@pytest.mark.parametrize("format_name", ["json", "console"])
@pytest.mark.parametrize(
    "key", ["token", "Authorization", "api_key", "apiKey", "x-token", "password", "secret"]
)
def test_secrets_are_hidden_by_the_name_of_their_key(format_name: str, key: str) -> None:
    """At the top and at any depth."""
    keys: dict[str, Any] = {key: "hunter2", "nested": [{key: "hunter2"}], "safe": "seen"}
    text = logged(format_name=format_name, **keys)
    assert "hunter2" not in text
    assert "seen" in text


@pytest.mark.parametrize("key", ["tokens_per_second", "token_file", "keyboard", "monkey"])
def test_what_only_sounds_like_a_secret_is_shown(key: str) -> None:
    """Names are judged by their last word."""
    assert "shown" in logged(**{key: "shown"})


def test_a_bearer_token_in_a_text_is_hidden() -> None:
    """Also where an error message repeats a header."""
    text = logged(error="refused: Authorization: Bearer abc.DEF-123=")
    assert "abc.DEF" not in text
    assert "refused" in text


def test_an_exception_is_one_json_line() -> None:
    """A traceback stays inside its object."""
    stream = io.StringIO()
    configure_logs(level="info", format_name="json", stream=stream)
    try:
        int("broken")
    except ValueError:
        structlog.get_logger("x").exception("beat_failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]
