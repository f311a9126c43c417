"""What a failed installation says of the agent that did not come up."""

from __future__ import annotations

from pathlib import Path

import pytest

from journeyman.installation.proof import last_words
from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.cli import main
from journeyman_updater.contract import StateRoot

WHY = "journeyman: the setting heartbeat_interval_seconds is no number"


def test_the_updater_is_not_quoted_for_the_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However a run of the updater ends, what it writes to the shared log hides no line of the agent."""
    root = StateRoot(tmp_path)
    run = ["--root", str(tmp_path)]
    assert main(run) == 0
    with FlockLocks().hold(root.update_lock):
        assert main(run) == 1
    root.updater_settings.write_text("{")
    assert main(run) == 78
    said = "".join(capsys.readouterr())
    assert len(said.splitlines()) == 3
    assert last_words(f"{WHY}\n{said}") == WHY
    assert last_words(f"{said}{WHY}\n\n") == WHY


@pytest.mark.parametrize("log", ["", "\n \n"])
def test_an_agent_that_said_nothing_is_quoted_with_nothing(log: str) -> None:
    """Then whoever asks has another reason to give."""
    assert last_words(log) == ""


def test_a_long_line_is_quoted_from_its_end() -> None:
    """A trace in one line says at its end what is wrong."""
    assert last_words("x" * 9000 + "why") == ("x" * 497 + "why")
