"""The trial handshake, as the agent speaks it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from journeyman.adapters.release_report import ReleaseReport
from journeyman_updater.contract import StateRoot, start_time
from journeyman_updater.contract.trial import NONCE_VARIABLE, SHA_VARIABLE, TrialReport


def environment() -> dict[str, str]:
    return {NONCE_VARIABLE: "nonce-1", SHA_VARIABLE: "ab" * 32, "PATH": "/usr/bin"}


def root_of(tmp_path: Path) -> StateRoot:
    root = StateRoot(tmp_path)
    root.run.mkdir()
    return root


def read(root: StateRoot) -> TrialReport:
    return TrialReport.from_json(root.trial_file.read_bytes())


def test_the_guards_variables_are_answered_and_taken_away(tmp_path: Path) -> None:
    """The report names the nonce, the release and this very process; no worker inherits the variables."""
    root, environ = root_of(tmp_path), environment()
    ReleaseReport(root, environ).ready()
    report = read(root)
    assert (report.nonce, report.sha) == ("nonce-1", "ab" * 32)
    assert (report.pid, report.start) == (os.getpid(), start_time(os.getpid()))
    assert environ == {"PATH": "/usr/bin"}


def test_ready_ends_the_guards_alarm(tmp_path: Path) -> None:
    """The alarm that the guard set before the exec would kill a start that hangs, and only that."""
    report = ReleaseReport(root_of(tmp_path), environment())
    signal.alarm(100)
    report.ready()
    assert signal.alarm(0) == 0


def test_beats_and_the_end_are_reported(tmp_path: Path) -> None:
    """The updater sees what was tried, what was taken, why not, and that a stop was in good order."""
    root = root_of(tmp_path)
    report = ReleaseReport(root, environment())
    report.beaten(ticking=True, attempted=3, accepted=2, error="Unreachable")
    said = read(root)
    assert (said.loops_ticking, said.beats_attempted, said.beats_accepted) == (True, 3, 2)
    assert said.beat_error == "Unreachable"
    report.stopped()
    assert read(root).stopped


def test_an_agent_started_by_hand_reports_nothing(tmp_path: Path) -> None:
    """Without a guard there is nobody to answer, and no file."""
    root = root_of(tmp_path)
    ReleaseReport(root, {}).ready()
    assert not root.trial_file.exists()


def test_a_report_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    """The folder may be gone or full; the agent goes on."""
    root = StateRoot(tmp_path / "nowhere")
    ReleaseReport(root, environment()).ready()
    assert not root.run.exists()


def test_only_an_agent_under_a_guard_can_be_updated(tmp_path: Path) -> None:
    """One that was started by hand says so, and no rollout waits for it."""
    root = root_of(tmp_path)
    assert ReleaseReport(root, environment()).is_guarded
    assert not ReleaseReport(root, {}).is_guarded
