"""People far away let a rejected release be tried again: once, until a time, for a reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.contract.allow import ALLOW, LONGEST, parse_allowance
from journeyman_updater.core.allowances import allowance_for
from journeyman_updater.core.requests import request_of
from journeyman_updater.errors import Reason
from journeyman_updater.forecast import Prospect, forecast
from journeyman_updater.model.journal import Record, Step
from journeyman_updater.model.release import UpdateRequest, VersionId, parse_sha256
from journeyman_updater.model.state import Rejection, Status
from journeyman_updater.steps.permit import Permit
from journeyman_updater.transaction import Ending, Transaction
from tests.crash.scenarios import make_scenario
from tests.crash.world import World

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
BAD = "ab" * 32
TEXT = f"2026-12-01T18:00:00Z {BAD} the disk was at fault"
REJECTED = Status(rejected=(Rejection("1.1.0", BAD, "CrashLoop", ""),))


def request(allow: str, sha256: str = BAD) -> UpdateRequest:
    return UpdateRequest(VersionId("1.1.0"), "https://releases.example/a.tar.gz", parse_sha256(sha256), allow)


def record(step: str, sha: str = "", **detail: Any) -> Record:
    return Record(1, "boot", 0, "", "1.1.0", 0, sha, step, detail)


def test_it_names_an_end_the_bytes_and_a_reason() -> None:
    """All three are read, and the reason is one line."""
    found = parse_allowance(f"2026-12-01T18:00:00Z  {BAD}  the disk\n was  at fault", NOON)
    assert found.until == NOON + timedelta(hours=6)
    assert (found.sha256, found.reason) == (BAD, "the disk was at fault")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begin with its end"),
        (BAD, "begin with its end"),
        (f"2026-12-01T18:00:00 {BAD} no zone", "begin with its end"),
        ("2026-12-01T18:00:00Z abcdef a reason", "the whole SHA-256"),
        (f"2026-12-01T18:00:00Z {BAD.upper()} a reason", "the whole SHA-256"),
        (f"2026-12-01T18:00:00Z {BAD}", "add the reason"),
        (f"2027-12-01T18:00:00Z {BAD} for ever", f"more than {LONGEST.days} days"),
    ],
)
def test_what_cannot_be_understood_says_what_to_write(text: str, said: str) -> None:
    """Each mistake has a sentence of its own, and allows nothing."""
    with pytest.raises(ValueError, match=said):
        parse_allowance(text, NOON)
    assert allowance_for(request(text), REJECTED, [], NOON) is None


def test_it_is_for_these_bytes_until_its_end() -> None:
    """Other bytes, a time after its end, and a release that nothing is held against need no allowance."""
    assert allowance_for(request(TEXT), REJECTED, [], NOON) is not None
    assert allowance_for(request(TEXT, "cd" * 32), REJECTED, [], NOON) is None
    assert allowance_for(request(TEXT), REJECTED, [], NOON + timedelta(hours=6)) is None
    assert allowance_for(request(TEXT), Status(), [], NOON) is None
    assert allowance_for(request(""), REJECTED, [], NOON) is None


def test_it_is_spent_with_the_try_that_follows() -> None:
    """A cut between record and state does not spend it; other words are a new one."""
    obeyed = record(Step.ALLOW, sha256=BAD, asked=TEXT)
    assert allowance_for(request(TEXT), REJECTED, [obeyed], NOON) is not None
    tried = [record(Step.ROLLED_BACK, BAD), obeyed, record(Step.ACTIVATE, BAD)]
    assert allowance_for(request(TEXT), REJECTED, tried, NOON) is None
    assert allowance_for(request(f"{TEXT}, again"), REJECTED, tried, NOON) is not None


def test_it_comes_with_the_request() -> None:
    """The annotation is read from the same answer as the updateRequest."""
    wish = {"targetVersion": "1.1.0", "url": "https://releases.example/a.tar.gz", "sha256": BAD}
    node = {
        "metadata": {"name": "desk", "annotations": {ALLOW: TEXT}},
        "status": {"updateRequest": wish},
    }
    found = request_of(node, "desk")
    assert found is not None
    assert found.allow == TEXT


def allowing(world: World, wanted: UpdateRequest, reason: str) -> UpdateRequest:
    until = (world.now() + timedelta(days=1)).isoformat()
    return replace(wanted, allow=f"{until} {wanted.sha256} {reason}")


@pytest.mark.slow
def test_a_rejected_release_is_tried_once_for_each_annotation(tmp_path: Path) -> None:
    """It is tried, fails by itself, is rejected again under the same annotation, and tried under another."""
    scenario = make_scenario(tmp_path, "crash")
    world, wanted = scenario.begin(), scenario.wanted.request()
    assert world.update(wanted).ending is Ending.ROLLED_BACK
    assert world.update(wanted).reason is Reason.DENYLISTED
    asked = allowing(world, wanted, "the disk was at fault")
    assert forecast(world.tools(), asked, Permit()).prospect is Prospect.UPDATES
    assert Transaction(world.tools()).apply(asked).ending is Ending.ROLLED_BACK
    allowed = [each for each in world.tools().records.history() if each.step == Step.ALLOW]
    assert [each.detail["reason"] for each in allowed] == ["the disk was at fault"]
    assert Transaction(world.tools()).apply(asked).reason is Reason.DENYLISTED
    again = allowing(world, wanted, "another disk")
    assert Transaction(world.tools()).apply(again).ending is Ending.ROLLED_BACK
