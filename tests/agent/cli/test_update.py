"""`journeyman update`: what it shows, and what it changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from journeyman.cli import root as cli
from journeyman.errors import ConfigError, JourneymanError, UsageError
from journeyman_updater.contract import StateRoot
from journeyman_updater.model.release import Slot, VersionId, parse_sha256
from journeyman_updater.model.state import Rejection, Spec, StateDocument, Status, Undone

ACTIVE, BAD = parse_sha256("ab" * 32), parse_sha256("cd" * 32)


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    """A state root on which 1.0.0 runs and 1.1.0 was rejected."""
    found = StateRoot(tmp_path / "state root")
    found.path.mkdir()
    rejected = (Rejection("1.1.0", BAD, "CrashLoop", "it ended"),)
    status = Status(active=Slot(VersionId("1.0.0"), ACTIVE), rejected=rejected)
    found.state_file.write_bytes(StateDocument(Spec(), status).to_json())
    return found


def run(root: StateRoot, *words: str) -> Result:
    return CliRunner().invoke(cli, ["update", *words, "--state-root", str(root.path)])


def test_status_shows_releases_and_rejections(root: StateRoot) -> None:
    """Status names the active release and each rejected one with its reason, for people and as JSON."""
    shown = run(root, "status").output
    assert "1.0.0" in shown
    assert "CrashLoop" in shown
    value = json.loads(run(root, "status", "--json").output)
    assert value["active"] == {"version": "1.0.0", "sha256": ACTIVE}
    assert value["rejected"][0]["sha256"] == BAD


def test_status_says_when_an_undone_release_is_tried_again(root: StateRoot) -> None:
    """One that the host failed is listed with its reason and its next try, or with what ends the waiting."""
    document = StateDocument.from_json(root.state_file.read_bytes())
    first = Undone("1.2.0", "ef" * 32, "RestartUnproven", 1, "another boot", 0)
    last = Undone("1.3.0", "12" * 32, "RestartUnproven", 3, "another boot", 0)
    status = replace(document.status, undone=(first, last))
    root.state_file.write_bytes(replace(document, status=status).to_json())
    shown = run(root, "status").output
    assert "1.2.0 was undone by no fault of its own, and is tried again" in shown
    assert f"tried no more until `journeyman update allow {last.sha256}`" in shown
    value = json.loads(run(root, "status", "--json").output)["undone"]
    assert [(item["times"], item["nextTrySeconds"] is None) for item in value] == [(1, False), (3, True)]
    assert run(root, "allow", last.sha256).exit_code == 0
    assert StateDocument.from_json(root.state_file.read_bytes()).status.undone == (first,)


def test_a_pin_is_set_lifted_and_journalled(root: StateRoot) -> None:
    """A pin is kept in its canonical form, lifted by unpin, and both are in the history."""
    assert run(root, "pin", "v1.2.3").exit_code == 0
    assert StateDocument.from_json(root.state_file.read_bytes()).spec.pin == "1.2.3"
    assert run(root, "unpin").exit_code == 0
    assert StateDocument.from_json(root.state_file.read_bytes()).spec.pin is None
    records = json.loads(run(root, "history", "--json").output)
    assert [record["detail"]["pin"] for record in records] == ["1.2.3", ""]


def test_a_rejection_is_lifted_by_its_digest(root: StateRoot) -> None:
    """`allow` lets one rejected release be tried again, and refuses one that was not rejected."""
    assert run(root, "allow", BAD).exit_code == 0
    assert not StateDocument.from_json(root.state_file.read_bytes()).status.rejected
    refused = run(root, "allow", BAD)
    assert isinstance(refused.exception, JourneymanError)
    assert "neither rejected" in refused.exception.message


@pytest.mark.parametrize("words", [["pin", "../x"], ["allow", "abc"]])
def test_bad_arguments_change_nothing(root: StateRoot, words: list[str]) -> None:
    """What is no version or digest is a usage error, and nothing is written."""
    before = root.state_file.read_bytes()
    assert isinstance(run(root, *words).exception, UsageError)
    assert root.state_file.read_bytes() == before
    assert not root.journal_file.exists()


def test_a_damaged_state_and_a_wrong_setting_are_one_line(root: StateRoot) -> None:
    """Neither a damaged state.json nor a typo in updater.json shows a traceback."""
    good = root.state_file.read_bytes()
    root.state_file.write_bytes(b"{")
    assert isinstance(run(root, "status").exception, ConfigError)
    root.state_file.write_bytes(good)
    root.updater_settings.write_text('{"soak_second": 1}')
    wrong = run(root, "status").exception
    assert isinstance(wrong, ConfigError)
    assert "soak_seconds" in wrong.message


def test_nothing_to_go_back_to_is_said(root: StateRoot) -> None:
    """Without a trial and without a previous release, rollback fails and restarts nothing."""
    refused = run(root, "rollback")
    assert isinstance(refused.exception, JourneymanError)
    assert "previous" in refused.exception.message
