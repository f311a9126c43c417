"""What a model server is started for, as text that decides about its adoption."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from journeyman.core.server_config import ServerConfig

PLAIN = ServerConfig("smol", "/m/smol.gguf", "0f", context_tokens=2048, parallel=2, threads=1)


def test_an_update_finds_the_text_of_the_first_release() -> None:
    """Servers of the first release are adopted by every later one: their text never changes."""
    assert PLAIN.to_json() == (
        b'{"context_tokens": 2048, "model": "smol", "parallel": 2, "path": "/m/smol.gguf", '
        b'"sha256": "0f", "threads": 1}'
    )


def test_every_option_makes_another_text_and_is_read_back() -> None:
    """No option can be changed without a server that has it."""
    for field in fields(ServerConfig):
        default = getattr(PLAIN, field.name)
        values: dict[type, Any] = {str: "other", int: 77, bool: not default, tuple: ("--x", "y")}
        changed = replace(PLAIN, **{field.name: values[type(default)]})
        assert changed.to_json() != PLAIN.to_json(), field.name
        assert ServerConfig.from_json(changed.to_json()) == changed
