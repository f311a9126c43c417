"""What an update waits for, on a host in a bottle: nothing that is under way ever does."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman_updater.errors import Reason, SourceError
from journeyman_updater.forecast import Prospect, forecast
from journeyman_updater.model.release import UpdateRequest
from journeyman_updater.model.state import StateDocument
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.permit import PlanePermit
from journeyman_updater.transaction import Ending, Outcome, Transaction
from tests.crash.scenarios import Scenario, make_scenario
from tests.crash.world import World

# The world begins on Monday 2026-06-01, shortly after midnight UTC.
CLOSED, OPEN = "Mon 12:00-13:00", "Mon 00:00-01:00"


class AskedWorld(World):
    """A world whose control plane has an answer, or none."""

    answer: UpdateRequest | None = None
    is_mute = False

    def wanted(self) -> UpdateRequest | None:
        if self.is_mute:
            raise SourceError(Reason.UNREACHABLE, "no answer")
        return self.answer


def begin(scenario: Scenario, *, window: str | None = None) -> AskedWorld:
    world = scenario.begin()
    world.__class__ = AskedWorld
    assert isinstance(world, AskedWorld)
    world.answer = scenario.wanted.request()
    document = StateDocument.from_json(world.disk.read(world.root.state_file))
    document = replace(document, spec=replace(document.spec, window=window))
    world.disk.write(world.root.state_file, document.to_json())
    return world


def permit(world: World, tools: Tools, request: UpdateRequest) -> PlanePermit:
    return PlanePermit(tools, request, lambda moment: moment.astimezone(UTC))


def follow(world: World, request: UpdateRequest) -> Outcome:
    """One run of the updater for a request of the control plane."""
    tools = world.tools()
    transaction = Transaction(tools)
    found = transaction.recover()
    if found.ending is not Ending.NOTHING:
        return found
    return transaction.apply(request, permit(world, tools, request))


def say(world: World, *, disk: str, age_seconds: float = 5.0) -> None:
    """The agent's gates say something of the disk."""
    written = world.now() - timedelta(seconds=age_seconds)
    gate = {"name": "disk", "level": disk, "reasons": [{"code": "LowSpace", "message": ""}]}
    report = {"writtenAt": written.isoformat(), "gates": [gate]}
    with world.quietly():
        world.disk.write(world.root.gates_file, json.dumps(report).encode())


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return make_scenario(tmp_path, "good")


def test_outside_the_window_nothing_starts_and_nothing_is_counted(scenario: Scenario) -> None:
    """A request outside the window costs no byte, no restart and no record, and goes through inside it."""
    world = begin(scenario, window=CLOSED)
    request = scenario.wanted.request()
    for _ in range(3):
        outcome = follow(world, request)
        assert (outcome.ending, outcome.reason) == (Ending.LATER, Reason.OUTSIDE_WINDOW)
    assert world.starts == ["0.1.0"]
    assert world.tools().records.history() == []
    world.wall_offset = timedelta(hours=12)
    assert follow(world, request).ending is Ending.COMMITTED


def test_a_person_does_not_wait_for_the_window(scenario: Scenario) -> None:
    """What is asked for at this host starts at once, whatever window, gates and plane say."""
    world = begin(scenario, window=CLOSED)
    say(world, disk="hold")
    world.answer = None
    assert world.update(scenario.wanted.request()).ending is Ending.COMMITTED


def test_a_window_that_closes_during_the_transfer_postpones_the_restart(scenario: Scenario) -> None:
    """What was staged stays, nothing is stopped, and the next window needs no transfer."""
    world = begin(scenario, window=OPEN)
    request = scenario.wanted.request()

    class SlowCheck(AskedWorld):
        def run(self, *arguments: object, **words: object) -> None:
            self.wall_offset = timedelta(hours=6)

    world.__class__ = SlowCheck
    outcome = follow(world, request)
    assert (outcome.ending, outcome.reason) == (Ending.LATER, Reason.OUTSIDE_WINDOW)
    assert world.starts == ["0.1.0"]
    assert not world.disk.names(world.root.run).count(world.root.pause_file.name)
    fetched = world.bytes_fetched
    world.__class__ = AskedWorld
    world.wall_offset = timedelta(days=7)
    assert follow(world, request).ending is Ending.COMMITTED
    assert world.bytes_fetched == fetched


@pytest.mark.parametrize("behaviour", ["good", "crash"])
def test_an_open_trial_is_finished_outside_the_window(tmp_path: Path, behaviour: str) -> None:
    """Whatever the trial comes to, commit and rollback wait for no window and no gate."""
    scenario = make_scenario(tmp_path, behaviour)
    world = begin(scenario, window=OPEN)
    say(world, disk="open")
    world.is_plane_up = False
    first = follow(world, scenario.wanted.request())
    world.is_plane_up = True
    world.wall_offset = timedelta(hours=6)
    say(world, disk="kill")
    if scenario.is_good:
        assert first.ending is Ending.INCONCLUSIVE
        assert follow(world, scenario.wanted.request()).ending is Ending.COMMITTED
    else:
        assert (first.ending, first.reason) == (Ending.ROLLED_BACK, Reason.CRASH_LOOP)
    assert Transaction(world.tools()).roll_back().ending in {Ending.COMMITTED, Ending.ROLLED_BACK}


def test_a_closed_gate_delays_the_fetch_and_its_old_word_does_not(scenario: Scenario) -> None:
    """A full disk postpones; once the agent's word is two minutes old it is no veto any more."""
    world = begin(scenario)
    request = scenario.wanted.request()
    say(world, disk="hold")
    outcome = follow(world, request)
    assert (outcome.ending, outcome.reason) == (Ending.LATER, Reason.GATE_CLOSED)
    assert world.starts == ["0.1.0"]
    say(world, disk="hold", age_seconds=121)
    assert follow(world, request).ending is Ending.COMMITTED


def test_a_closed_gate_does_not_delay_what_is_staged(scenario: Scenario) -> None:
    """A release that lies here is activated although the disk gate is closed."""
    world = begin(scenario, window=OPEN)
    request = scenario.wanted.request()

    class SlowCheck(AskedWorld):
        def run(self, *arguments: object, **words: object) -> None:
            self.wall_offset = timedelta(hours=6)

    world.__class__ = SlowCheck
    assert follow(world, request).ending is Ending.LATER
    world.__class__ = AskedWorld
    world.wall_offset = timedelta()
    say(world, disk="kill")
    assert follow(world, request).ending is Ending.COMMITTED


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_request_that_changed_during_the_transfer_stops_nothing(
    scenario: Scenario, *, is_replaced: bool
) -> None:
    """A request that was replaced or taken back while it was fetched is not activated."""
    world = begin(scenario)
    request = scenario.wanted.request()
    world.answer = scenario.old[0].request() if is_replaced else None
    outcome = follow(world, request)
    assert (outcome.ending, outcome.reason) == (Ending.LATER, Reason.SUPERSEDED)
    assert world.starts == ["0.1.0"]


def test_a_plane_that_cannot_be_asked_again_does_not_take_back(scenario: Scenario) -> None:
    """Silence after the transfer is no change of mind."""
    world = begin(scenario)
    world.is_mute = True
    assert follow(world, scenario.wanted.request()).ending is Ending.COMMITTED


def test_the_forecast_is_what_then_happens(scenario: Scenario) -> None:
    """Refused, waiting, updating and not needed are foretold, and foretelling changes nothing."""
    world = begin(scenario, window=CLOSED)
    request, tools = scenario.wanted.request(), world.tools()

    def told() -> tuple[Prospect, Reason | None, int | None]:
        points = len(world.disk.points)
        found = forecast(tools, request, permit(world, tools, request))
        assert len(world.disk.points) == points
        return found.prospect, found.reason, found.bytes_to_fetch

    assert told() == (Prospect.WAITS, Reason.OUTSIDE_WINDOW, None)
    world.wall_offset = timedelta(hours=12)
    assert told() == (Prospect.UPDATES, None, len(scenario.wanted.archive))
    say(world, disk="hold")
    assert told() == (Prospect.WAITS, Reason.GATE_CLOSED, None)
    say(world, disk="open")
    assert follow(world, request).ending is Ending.COMMITTED
    assert told() == (Prospect.NOT_NEEDED, None, None)
    request = scenario.old[0].request()
    assert told() == (Prospect.REFUSED, Reason.ROLLBACK_REFUSED, None)


def test_a_clock_that_is_wrong_opens_no_window_and_loses_no_update(scenario: Scenario) -> None:
    """In 1970 a Thursday is not the Monday of the window; once the clock is set the update goes through."""
    world = begin(scenario, window=OPEN)
    world.wall_offset = datetime(1970, 1, 1, tzinfo=UTC) - world.now()
    assert follow(world, scenario.wanted.request()).reason is Reason.OUTSIDE_WINDOW
    world.wall_offset = timedelta()
    assert follow(world, scenario.wanted.request()).ending is Ending.COMMITTED
