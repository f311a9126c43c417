"""How an update goes, as others are told of it: in a file, and on the FleetNode while the agent is silent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.adapters.node_api import NodeApi
from journeyman_updater.adapters.update_news import UpdateNews
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.node import NodeFile
from journeyman_updater.contract.progress import UpdateProgress
from journeyman_updater.core.node_condition import condition_patch
from journeyman_updater.errors import Reason
from journeyman_updater.model.journal import Record, Step
from journeyman_updater.model.release import Slot, VersionId, parse_sha256
from journeyman_updater.run import Ending
from tests.support.kept_host import KeptHost, dummy
from tests.support.plane import FOREMAN, MERGE_PATCH, RunningPlane, fleet_node, running_plane
from tests.support.waiting import eventually

SHA = parse_sha256("ab" * 32)
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SLOT = Slot(VersionId("0.2.0"), SHA, "nonce")


class StoppedClock:
    """A clock of a host that came up an hour ago."""

    seconds_up = 3600

    def now(self) -> datetime:
        return NOW

    def monotonic_ns(self) -> int:
        return self.seconds_up * 10**9

    def boot_id(self) -> str:
        return "boot"

    def wait(self, seconds: float) -> None:
        raise AssertionError("news never wait")


def record(step: str, attempt: int = 0, sha: str = SHA, **detail: Any) -> Record:
    return Record(1, "boot", 0, "", "0.2.0", attempt, sha, step, detail)


class Desk:
    """News of one state root, and what was told of them."""

    def __init__(self, folder: Path) -> None:
        self.root = StateRoot(folder)
        self.root.run.mkdir()
        self.root.agent.mkdir()
        self.clock = StoppedClock()
        self.told: list[tuple[bool, str, str]] = []

    def news(self) -> UpdateNews:
        return UpdateNews(self.root, self.clock, self.told.append)

    def beat(self, age_seconds: float) -> None:
        self.root.last_beat_file.touch()
        stamp = NOW.timestamp() - age_seconds
        os.utime(self.root.last_beat_file, (stamp, stamp))

    def said(self) -> tuple[bool, str, str] | None:
        return UpdateProgress.from_json(self.root.progress_file.read_bytes()).condition()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        (UpdateProgress("fetch", "0.2.0", SHA), (True, "Fetching", "0.2.0 is fetched")),
        (
            UpdateProgress("fetch", "0.2.0", SHA, bytes_here=399, bytes_total=1000),
            (True, "Fetching", "0.2.0 is fetched, 30 % of 1000 bytes"),
        ),
        (
            UpdateProgress("fetch", "0.2.0", SHA, bytes_here=25_000_000),
            (True, "Fetching", "0.2.0 is fetched, 20000000 bytes so far"),
        ),
        (UpdateProgress("activate", "0.2.0", SHA, 1), (True, "Trying", "0.2.0 runs on trial, attempt 1")),
        (
            UpdateProgress("rolled_back", "0.2.0", SHA, 3, reason="CrashLoop", message="it ended"),
            (False, "CrashLoop", "0.2.0 was undone, attempt 3: it ended"),
        ),
        (UpdateProgress("committed", "0.2.0", SHA), (False, "Updated", "0.2.0 runs")),
        (
            UpdateProgress("later", "0.2.0", SHA, reason="OutsideWindow", message="closed"),
            (False, "OutsideWindow", "0.2.0 waits: closed"),
        ),
        (UpdateProgress("a step of a later updater", "0.2.0", SHA), None),
    ],
)
def test_the_condition_says_reason_attempt_bytes_and_percent(
    progress: UpdateProgress, told: tuple[bool, str, str] | None
) -> None:
    """Each step has its sentence; what a newer updater does and we do not know is not told."""
    assert progress.condition() == told
    assert UpdateProgress.from_json(progress.to_json()) == progress


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": 2}',
        '{"format": 1, "step": "fetch", "version": "1"}',
        '{"format": 1, "step": "fetch", "version": "1", "sha256": "", "attempt": "x"}',
        '{"format": 1, "step": "fetch", "version": "1", "sha256": "", "reason": "no code"}',
    ],
)
def test_what_is_no_progress_is_refused(text: str) -> None:
    """A file that would make a condition which the control plane refuses is no progress."""
    with pytest.raises(ValueError, match=r"progress|Expecting"):
        UpdateProgress.from_json(text.encode())


def test_a_transfer_is_told_of_by_tenths(desk: Desk) -> None:
    """A thousand pieces of an artifact change the file eleven times at most."""
    desk.beat(age_seconds=10)
    news = desk.news()
    news.noted(record(Step.FETCH))
    written = set()
    for here in range(0, 1_000_001, 1000):
        news.fetched(here, 1_000_000)
        written.add(desk.root.progress_file.read_bytes())
    assert len(written) == 11
    assert desk.said() == (True, "Fetching", "0.2.0 is fetched, 100 % of 1000000 bytes")


def test_a_rollback_keeps_its_reason(desk: Desk) -> None:
    """The record of the end does not say why, and the one before it does, also across two runs."""
    desk.beat(age_seconds=10)
    desk.news().noted(record(Step.ROLLBACK, 3, reason=Reason.CRASH_LOOP, evidence="it ended 3 times"))
    desk.news().noted(record(Step.ROLLED_BACK, 3, is_proven=True))
    assert desk.said() == (False, "CrashLoop", "0.2.0 was undone, attempt 3: it ended 3 times")


def test_what_belongs_to_no_update_is_not_told(desk: Desk) -> None:
    """A pin, a window and the deletion of old versions change no condition."""
    for step in (Step.PIN, Step.WINDOW, Step.RETIRE, Step.ALLOW):
        desk.news().noted(record(step))
    desk.news().noted(record(Step.REFUSED, sha=""))
    assert not desk.root.progress_file.exists()


def test_a_step_that_nobody_is_told_of_does_not_hide_the_end(desk: Desk) -> None:
    """What the updater does for itself after a commit leaves the word on the commit as it was."""
    news = desk.news()
    news.noted(record(Step.COMMITTED))
    news.noted(record("a step for itself"))
    news.ended()
    assert desk.told == [(False, "Updated", "0.2.0 runs")]
    assert desk.said() == desk.told[0]


def test_the_updater_speaks_only_for_a_silent_agent(desk: Desk) -> None:
    """Up to five minutes after an accepted heartbeat the agent speaks; after that the updater does."""
    desk.beat(age_seconds=299)
    news = desk.news()
    news.noted(record(Step.FETCH))
    news.ended()
    assert desk.told == []
    desk.beat(age_seconds=301)
    news.noted(record(Step.STAGE))
    news.ended()
    assert desk.told == [(True, "Staging", "0.2.0 is unpacked and checked")]
    desk.news().ended()
    assert len(desk.told) == 2


def test_an_agent_that_never_beat_is_silent_five_minutes_after_the_boot(desk: Desk) -> None:
    """Without a stamp the age of the boot counts, so that a starting agent is not spoken over."""
    desk.clock.seconds_up = 200
    desk.news().noted(record(Step.FETCH))
    assert desk.told == []
    desk.clock.seconds_up = 400
    desk.news().ended()
    assert len(desk.told) == 1


def test_nothing_is_told_between_stop_and_start(desk: Desk) -> None:
    """While a release is tried or undone no control plane is waited for; the end of the run tells."""
    desk.beat(age_seconds=1000)
    news = desk.news()
    for step in (Step.DRAIN, Step.ACTIVATE, Step.ROLLBACK, Step.ROLLED_BACK):
        news.noted(record(step, reason="NotReady"))
    assert desk.told == []
    news.ended()
    assert [reason for _, reason, _ in desk.told] == ["NotReady"]


def test_a_host_that_takes_no_file_is_updated_all_the_same(tmp_path: Path) -> None:
    """News that cannot be written are no error."""
    root = StateRoot(tmp_path / "gone")
    news = UpdateNews(root, StoppedClock(), lambda told: None)
    news.noted(record(Step.FETCH))
    news.postponed(SLOT, "OutsideWindow", "closed")
    news.refused(SLOT, "Pinned", "pinned")
    news.checked()
    news.ended()


def test_a_condition_keeps_the_others_and_its_time() -> None:
    """Conditions of others go back as they were; ours keeps its time while its status stays."""
    ready = {"type": "Ready", "status": "True", "reason": "x", "message": "", "foreign": 1}
    node = {"metadata": {"resourceVersion": "7"}, "status": {"conditions": [ready]}}
    first = condition_patch(node, (True, "Fetching", "a"), NOW)
    assert first is not None
    assert first["metadata"] == {"resourceVersion": "7"}
    ours = first["status"]["conditions"][1]
    assert first["status"]["conditions"][0] == ready
    assert ours["lastTransitionTime"] == "2026-06-01T12:00:00Z"
    node["status"] = first["status"]
    assert condition_patch(node, (True, "Fetching", "a"), NOW) is None
    later = condition_patch(node, (True, "Staging", "b"), NOW.replace(hour=13))
    assert later is not None
    assert later["status"]["conditions"][1]["lastTransitionTime"] == "2026-06-01T12:00:00Z"
    done = condition_patch(node, (False, "Updated", "b"), NOW.replace(hour=13))
    assert done is not None
    assert done["status"]["conditions"][1]["lastTransitionTime"] == "2026-06-01T13:00:00Z"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RunningPlane]:
    """A plane with one node, on which somebody else has a condition."""
    with running_plane(tmp_path) as running:
        with running.client() as client:
            assert client.post(f"{FOREMAN}/fleetnodes", json=fleet_node("desk")).is_success
            other = {
                "type": "Ready",
                "status": "True",
                "reason": "Fresh",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            url = f"{FOREMAN}/fleetnodes/desk/status"
            body = {"status": {"conditions": [other]}}
            assert client.patch(url, json=body, headers=MERGE_PATCH).is_success
            # The plane finds out that the node never beats, and has no more to say of it then.
            eventually(lambda: client.get(url).json()["status"]["conditions"][0]["status"] == "False")
        yield running


@pytest.mark.slow
def test_the_condition_is_written_to_a_real_plane(plane: RunningPlane, tmp_path: Path) -> None:
    """The updater's word lands beside the conditions of others, once, and no failure of it is an error."""
    path = tmp_path / "node.json"
    path.write_bytes(NodeFile("desk", plane.url, token_file=str(plane.token_file)).to_json())
    api = NodeApi(path)
    api.tell((True, "Fetching", "0.2.0 is fetched"), NOW)
    with plane.client() as client:
        node = client.get(f"{FOREMAN}/fleetnodes/desk").json()
        api.tell((True, "Fetching", "0.2.0 is fetched"), NOW)
        assert client.get(f"{FOREMAN}/fleetnodes/desk").json() == node
    assert [item["type"] for item in node["status"]["conditions"]] == ["Ready", "Updating"]
    assert node["status"]["conditions"][1]["lastTransitionTime"] == "2026-06-01T12:00:00Z"
    path.write_bytes(NodeFile("shed", plane.url, token_file=str(plane.token_file)).to_json())
    api.tell((True, "Fetching", ""), NOW)
    path.write_bytes(NodeFile("desk", "http://127.0.0.1:9").to_json())
    api.tell((True, "Fetching", ""), NOW)
    path.unlink()
    api.tell((True, "Fetching", ""), NOW)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: the dummy agents read /proc")
def test_a_real_update_leaves_its_story_in_the_file(tmp_path: Path) -> None:
    """After a good and a crashing release the file says Updated, then CrashLoop with three attempts."""
    host = KeptHost(tmp_path)
    try:
        host.start()
        assert host.updater().apply(host.request(dummy("0.2.0"))).ending is Ending.COMMITTED
        assert json.loads(host.root.progress_file.read_bytes())["step"] == "committed"
        host.updater().apply(host.request(dummy("0.3.0", "crash")))
        told = UpdateProgress.from_json(host.root.progress_file.read_bytes())
        assert (told.version, told.reason, told.attempt) == ("0.3.0", "CrashLoop", 3)
    finally:
        host.stop()
