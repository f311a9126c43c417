"""`journeyman update bootstrap`: what a person gives and gets."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from journeyman.cli import root as cli
from journeyman.errors import JourneymanError
from journeyman_updater.adapters.minisign_keys import SecretKey
from tests.simulator.releases import installable

pytestmark = pytest.mark.slow

KEY = SecretKey.generate()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "release.pub"
    path.write_text(KEY.public.to_file())
    return path


def run(root: Path, artifact: Path, *words: str | Path) -> Result:
    given = [str(word) for word in (artifact, *words, "--state-root", root)]
    return CliRunner().invoke(cli, ["update", "bootstrap", *given])


def test_the_given_settings_are_kept_for_the_agent(tmp_path: Path, key_file: Path) -> None:
    """config.toml has what was given, spaces included, and lets the plane's releases update this host."""
    root, artifact = tmp_path / "root", installable(tmp_path / "made", KEY)
    (tmp_path / "a token").write_text("secret")
    words = ("--key", key_file, "--server", "http://127.0.0.1:6480", "--token-file", tmp_path / "a token")
    result = run(root, artifact, *words, "--models", "one", "--models", "two", "--json")
    assert result.exception is None, result.output
    shown = json.loads(result.output)
    assert (shown["version"], shown["runGuard"]) == ("0.2.0", str(root / "run-guard"))
    assert tomllib.loads((root / "config.toml").read_text()) == {
        "updates_source": "agentrelease",
        "server": "http://127.0.0.1:6480",
        "token_file": str(tmp_path / "a token"),
        "models": ["one", "two"],
    }


def test_a_config_that_is_there_is_kept(tmp_path: Path, key_file: Path) -> None:
    """What a person wrote before is theirs."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "config.toml").write_text('node_name = "mine"\n')
    result = run(root, installable(tmp_path / "made", KEY), "--key", key_file)
    assert result.exception is None, result.output
    assert (root / "config.toml").read_text() == 'node_name = "mine"\n'


def test_a_refusal_names_its_reason_and_leaves_no_config(tmp_path: Path) -> None:
    """Without a key nothing is installed, and the advice says which is meant."""
    root = tmp_path / "root"
    result = run(root, installable(tmp_path / "made", KEY))
    assert isinstance(result.exception, JourneymanError)
    assert result.exception.message.startswith("BadRequest: no key is pinned")
    assert "--key" in result.exception.advice
    assert not (root / "config.toml").exists()
