"""The code blocks of the docs are true."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(REPOSITORY)), body)
        for path in DOCS
        for found, body in BLOCK.findall(path.read_text())
        if found == language
    ]


def journeyman_commands() -> list[tuple[str, list[str]]]:
    """Every `journeyman ...` line of the shell blocks, without its arguments' values."""
    commands = []
    for place, body in blocks("sh") + blocks("console"):
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["journeyman"]:
                commands.append((place, words[1:]))
    return commands


@pytest.mark.parametrize(("place", "body"), blocks("toml"))
def test_toml_blocks_parse(place: str, body: str) -> None:
    """A TOML block in the docs is TOML."""
    assert tomllib.loads(body), place


@pytest.mark.slow
@pytest.mark.parametrize(("place", "words"), journeyman_commands())
def test_commands_and_options_in_the_docs_exist(place: str, words: list[str]) -> None:
    """A command that the docs show exists, and so does each of its options."""
    path = [word for word in words if re.fullmatch(r"[a-z-]+", word)]
    for length in range(len(path), -1, -1):
        shown = subprocess.run(
            [sys.executable, "-m", "journeyman", *path[:length], "--help"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if shown.returncode == 0:
            break
    assert length or not path, f"{place}: journeyman {' '.join(words)} is no command"
    for option in (word.split("=")[0] for word in words if word.startswith("--")):
        assert option in shown.stdout, f"{place}: journeyman {' '.join(words)} has no {option}"


def test_tests_that_the_docs_name_exist() -> None:
    """A rule in the docs is held by a test of that name."""
    named = {each for path in DOCS for each in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", path.read_text())}
    missing = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if f"def {name}(" not in (REPOSITORY / path).read_text()
    ]
    assert len(named) > 50
    assert missing == []
