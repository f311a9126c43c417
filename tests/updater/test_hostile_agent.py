"""What an agent's user may do in its own folders costs it its trial at most; nothing of root's is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from journeyman_updater.contract import StateRoot, TrialReport
from journeyman_updater.model.journal import Step
from journeyman_updater.model.lines import seal
from journeyman_updater.run import compose
from journeyman_updater.settings import Settings
from journeyman_updater.steps.activate import put_on_trial
from journeyman_updater.steps.base import Tools
from tests.support.kept_host import KeptRoot


def _no_file(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _large(path: Path) -> None:
    path.write_bytes(b"[" * 4_000_000)


def _deep(path: Path) -> None:
    path.write_bytes(b"[" * 60_000)


def _odd(path: Path) -> None:
    path.write_bytes(seal({"event": "start", "nonce": [], "boot": {}, "pid": 1e999}))


SPOILT: list[Callable[[Path], None]] = [_no_file, _fifo, _link, _endless, _large, _deep, _odd]


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return compose(KeptRoot(tmp_path / "host").root, Settings(), lambda _here, _total: None)


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda each: each.__name__)
def test_what_cannot_be_read_says_nothing(tools: Tools, spoil: Callable[[Path], None]) -> None:
    """Whatever lies where attempts and report belong: none of it is believed, waited for, or an error."""
    for path in (tools.root.attempts_file, tools.root.trial_file):
        spoil(path)
    assert [attempt for attempt in tools.records.attempts() if attempt.event == "refund"] == []
    assert tools.records.report() is None


def test_a_report_with_values_of_another_kind_is_none(tools: Tools) -> None:
    """Each field is what it is said to be, or nothing of the report counts."""
    good = json.loads(TrialReport("nonce", 1, "2", "sha").to_json())
    tools.root.trial_file.write_text(json.dumps(good))
    assert tools.records.report() is not None
    for name in set(good) - {"format"}:
        tools.root.trial_file.write_text(json.dumps({**good, name: []}))
        assert tools.records.report() is None, name


def test_activation_touches_no_file_that_the_agent_has_linked_to(tools: Tools, tmp_path: Path) -> None:
    """Another name of root's file in the place of `attempts` goes, and that file keeps its content."""
    of_root = tmp_path / "shadow"
    of_root.write_text("root:")
    tools.root.attempts_file.hardlink_to(of_root)
    _activate(tools)
    assert of_root.read_text() == "root:"
    assert not tools.root.attempts_file.exists()


def test_a_folder_in_the_place_of_attempts_keeps_no_update_away(tools: Tools) -> None:
    """The trial begins; that the guard cannot count its starts is the agent's own loss."""
    tools.root.attempts_file.mkdir()
    _activate(tools)
    assert tools.records.load().status.trial is not None


def _activate(tools: Tools) -> None:
    slot = tools.records.load().status.active
    assert slot is not None
    put_on_trial(tools, slot)


def test_the_journal_can_be_read_by_the_guard(tools: Tools) -> None:
    """It runs as the agent's user, and falls back on what was committed where there is no state document."""
    tools.records.append(Step.PIN, None, pin="")
    root = StateRoot(tools.root.path)
    assert root.journal_file.stat().st_mode & 0o777 == 0o644
