"""The condition `Updating`, as the agent tells it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from journeyman.adapters.update_progress import told_of_update
from journeyman.core.gates.conditions import Told, with_conditions
from journeyman.model.meta import ConditionStatus
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.progress import UpdateProgress

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def test_what_the_updater_wrote_is_told(tmp_path: Path) -> None:
    """A step of the updater is a condition that the wire takes; a boot that took the file takes the word."""
    root = StateRoot(tmp_path)
    assert told_of_update(root) == ()
    root.run.mkdir()
    progress = UpdateProgress("fetch", "0.2.0", "ab", bytes_here=5, bytes_total=10)
    root.progress_file.write_bytes(progress.to_json())
    told = told_of_update(root)
    message = "0.2.0 is fetched, 50 % of 10 bytes"
    assert told == (Told("Updating", ConditionStatus.TRUE, "Fetching", message),)
    [condition] = with_conditions((), told, NOW) or ()
    assert condition.to_wire()["type"] == "Updating"
    assert with_conditions((condition,), told, NOW) is None


def test_a_file_that_is_none_keeps_no_beat_back(tmp_path: Path) -> None:
    """Whatever lies there, the heartbeat goes on without it."""
    root = StateRoot(tmp_path)
    root.run.mkdir()
    for text in (
        "",
        "{",
        '{"format": 1, "step": 1}',
        '{"format": 1, "step": "x", "version": "", "sha256": ""}',
    ):
        root.progress_file.write_text(text)
        assert told_of_update(root) == ()
    root.progress_file.unlink()
    root.progress_file.mkdir()
    assert told_of_update(root) == ()
