"""The lines of a join come and go, and a person's stay."""

from __future__ import annotations

import tomllib

import pytest

from journeyman.core.config_block import Value, has_block, with_block, without_block

VALUES: dict[str, Value] = {
    "server": "https://192.0.2.10:6480",
    "roles": ["worker", "verifier"],
    "allow_insecure_http": True,
    "node_labels": {"journeyman.dev/zone": 'a "quoted" one', "b": ""},
}


@pytest.mark.parametrize("text", ["", "models = ['a']\n", "# mine\n\n[gates.disk]\nreserve_percent = 0\n"])
def test_the_lines_come_and_go(text: str) -> None:
    """What is put in is read as TOML beside what was there, and what is taken away leaves just that."""
    written = with_block(text, VALUES)
    assert tomllib.loads(written) == VALUES | tomllib.loads(text)
    assert has_block(written)
    assert not has_block(text)
    assert without_block(written) == text
    assert without_block(text) == text


def test_new_lines_take_the_place_of_old_ones() -> None:
    """A second join leaves one set of lines."""
    twice = with_block(with_block("models = ['a']\n", VALUES), {"server": "https://192.0.2.11"})
    assert tomllib.loads(twice) == {"server": "https://192.0.2.11", "models": ["a"]}


def test_half_a_block_is_left_alone() -> None:
    """Lines of which a person has removed one end are that person's."""
    text = with_block("", VALUES).rpartition("# End")[0]
    assert without_block(text) == text
