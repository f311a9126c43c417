from __future__ import annotations

from typing import Any

import pytest

from journeyman.model.agent_release import NodeUpdatePhase, ReleasePhase
from journeyman.model.meta import find_condition
from journeyman.model.resources import AGENT_RELEASES, FLEET_NODES
from tests.support.plane_objects import SHA256, PlaneInMemory

OLD: dict[str, Any] = {"agentKind": "foreman-agent", "agentVersion": "1.0.0", "os": "linux", "arch": "arm64"}
NOT_UPDATABLE = {
    "type": "Updatable",
    "status": "False",
    "reason": "ReadOnlyRoot",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def add_fleet(plane: PlaneInMemory, names: str = "abc", **status: Any) -> None:
    for name in names:
        plane.add_node(name, **{**OLD, **status})


def asked(plane: PlaneInMemory) -> dict[str, str]:
    """The version that each node is asked to run, of those that are asked."""
    requests = {name: plane.node(name).status.update_request for name in plane.node_names()}
    return {name: request.target_version for name, request in requests.items() if request}


def phases(plane: PlaneInMemory, release: str = "release") -> dict[str, str]:
    return {item.name: item.phase.value for item in plane.release(release).status.node_statuses}


def message(plane: PlaneInMemory, name: str) -> str:
    return next(item.message for item in plane.release().status.node_statuses if item.name == name)


def condition(plane: PlaneInMemory, kind: str, release: str = "release") -> str:
    found = find_condition(plane.release(release).status.conditions, kind)
    assert found is not None
    return f"{found.status}/{found.reason}"


def pass_time(plane: PlaneInMemory, seconds: int, **versions: str) -> None:
    """Lets the time pass in steps of ten seconds, in which every node beats with its version."""
    for _ in range(seconds // 10):
        plane.clock.move(10)
        for name in plane.node_names():
            plane.beat(name, **({"agentVersion": versions[name]} if name in versions else {}))
        plane.settle()


def test_a_release_rolls_over_its_nodes_one_by_one(plane: PlaneInMemory) -> None:
    """Each node is asked when the one before it has soaked, and at the end nothing is asked any more."""
    add_fleet(plane)
    plane.add_release()
    plane.settle()
    for name in "abc":
        assert asked(plane) == {name: "2.0.0"}
        assert plane.release().status.in_flight_nodes == (name,)
        pass_time(plane, 80, **{name: "2.0.0"})
    status = plane.release().status
    assert (status.phase, status.target_nodes, status.updated_nodes) == (ReleasePhase.SUCCEEDED, 3, 3)
    assert (status.desired_version, status.observed_generation) == ("2.0.0", 1)
    assert condition(plane, "Complete") == "True/AllNodesUpdated"
    assert condition(plane, "Halted") == "False/NoNodeFailed"
    assert asked(plane) == {}


def test_a_node_is_asked_for_the_artifact_of_its_platform(plane: PlaneInMemory) -> None:
    """The request carries version, url and hash of that artifact, as the release spells them."""
    add_fleet(plane, "a")
    add_fleet(plane, "b", os="darwin")
    mac = {"os": "darwin", "arch": "arm64", "url": "https://plane/mac.tar.gz", "sha256": "b" * 64}
    linux = {"os": "linux", "arch": "arm64", "url": "https://plane/linux.tar.gz", "sha256": SHA256}
    plane.add_release(version="v2.0.0", artifacts=[linux, mac], concurrency=2)
    plane.settle()
    request = plane.node("b").status.update_request
    assert request is not None
    assert (request.target_version, request.url, request.sha256) == ("v2.0.0", mac["url"], mac["sha256"])
    assert asked(plane) == {"a": "v2.0.0", "b": "v2.0.0"}


def test_no_more_nodes_than_the_concurrency_are_asked(plane: PlaneInMemory) -> None:
    """With concurrency 2 the third node waits."""
    add_fleet(plane)
    plane.add_release(concurrency=2)
    plane.settle()
    assert set(asked(plane)) == {"a", "b"}


def test_only_nodes_of_the_kind_that_the_selector_matches_are_targets(plane: PlaneInMemory) -> None:
    """Kind and labels decide; a node without a kind is nobody's."""
    plane.add_node("other", **{**OLD, "agentKind": "metal-agent"})
    plane.add_node("bare")
    plane.add_node("pod", labels={"where": "cluster"}, **OLD)
    plane.add_node("desk", labels={"where": "edge"}, **OLD)
    plane.add_release(
        selector={"matchExpressions": [{"key": "where", "operator": "NotIn", "values": ["cluster"]}]}
    )
    plane.settle()
    assert phases(plane) == {"desk": "Updating"}


def test_nothing_happens_before_approval(plane: PlaneInMemory) -> None:
    """Unapproved, a release asks no node and fails for nothing, not even for a missing artifact."""
    add_fleet(plane, "a", arch="amd64")
    add_fleet(plane, "b")
    plane.add_release(approved=False)
    plane.settle()
    assert plane.release().status.phase is ReleasePhase.AWAITING_APPROVAL
    assert condition(plane, "Approved") == "False/AwaitingApproval"
    assert asked(plane) == {}


def test_a_missing_artifact_halts_an_approved_release_before_any_node_is_asked(plane: PlaneInMemory) -> None:
    """It is known beforehand that the rollout cannot end, so it does not start."""
    add_fleet(plane, "a")
    add_fleet(plane, "b", arch="amd64")
    plane.add_release()
    plane.settle()
    assert plane.release().status.phase is ReleasePhase.FAILED
    assert condition(plane, "Halted") == "True/NoMatchingArtifact"
    assert asked(plane) == {}


def test_a_node_that_runs_the_version_needs_no_artifact(plane: PlaneInMemory) -> None:
    """A node whose platform the release does not serve may have the version from elsewhere."""
    add_fleet(plane, "a", arch="amd64", agentVersion="2.0.0")
    plane.add_release()
    plane.settle()
    pass_time(plane, 60)
    assert plane.release().status.phase is ReleasePhase.SUCCEEDED


@pytest.mark.parametrize("reported", ["v2.0.0", "2.0.0+gabc123"])
def test_versions_are_compared_by_meaning(plane: PlaneInMemory, reported: str) -> None:
    """An agent that spells the version otherwise has updated all the same."""
    add_fleet(plane, "a")
    plane.add_release()
    plane.settle()
    pass_time(plane, 70, a=reported)
    assert phases(plane) == {"a": "Updated"}


def test_a_node_soaks_for_the_whole_time(plane: PlaneInMemory) -> None:
    """A node is updated when it has been healthy for minHealthySeconds, and not earlier."""
    add_fleet(plane, "a")
    plane.add_release(healthGate={"minHealthySeconds": 60})
    plane.settle()
    pass_time(plane, 60, a="2.0.0")
    assert (phases(plane), message(plane, "a")) == ({"a": "Updating"}, "soaking")
    pass_time(plane, 10)
    assert phases(plane) == {"a": "Updated"}


@pytest.mark.parametrize("setback", [{"phase": "Draining"}, {"agentVersion": "1.0.0"}], ids=str)
def test_the_soak_starts_over_when_a_node_is_not_healthy_in_between(
    plane: PlaneInMemory, setback: dict[str, str]
) -> None:
    """Fifty good seconds before and fifty after a setback are not sixty."""
    add_fleet(plane, "a")
    plane.add_release()
    plane.settle()
    pass_time(plane, 50, a="2.0.0")
    plane.beat("a", **setback)
    plane.settle()
    pass_time(plane, 60, a="2.0.0")
    assert phases(plane) == {"a": "Updating"}
    pass_time(plane, 10)
    assert phases(plane) == {"a": "Updated"}


def test_a_silence_in_the_soak_starts_it_over(plane: PlaneInMemory) -> None:
    """A stale heartbeat is no health, even if the next one says that all is well."""
    add_fleet(plane, "a")
    plane.add_release()
    plane.settle()
    pass_time(plane, 30, a="2.0.0")
    plane.clock.move(91)
    plane.settle()
    pass_time(plane, 60)
    assert phases(plane) == {"a": "Updating"}


@pytest.mark.parametrize("held", ["draining", "silent", "label", "condition"])
def test_a_node_that_cannot_update_now_is_not_asked(plane: PlaneInMemory, held: str) -> None:
    """Nodes that drain, are away or say that they cannot are passed over and asked when that ends."""
    labels = {"journeyman.dev/updatable": "false"} if held == "label" else None
    plane.add_node("a", labels=labels, beat_seconds_ago=200 if held == "silent" else 0, **OLD)
    if held == "draining":
        plane.write_status(FLEET_NODES, "a", {"phase": "Draining"})
    if held == "condition":
        plane.write_status(FLEET_NODES, "a", {"conditions": [NOT_UPDATABLE]})
    add_fleet(plane, "b")
    plane.add_release()
    plane.settle()
    assert phases(plane) == {"a": "Pending", "b": "Updating"}
    assert message(plane, "a").startswith("waits until the node")
    plane.write_metadata(FLEET_NODES, "a", {"labels": None})
    plane.beat("a", conditions=None)
    plane.beat("b", agentVersion="2.0.0")
    plane.settle()
    pass_time(plane, 60)
    assert phases(plane) == {"a": "Updating", "b": "Updated"}


def test_a_node_of_unknown_platform_is_waited_for(plane: PlaneInMemory) -> None:
    """It can neither be asked nor be failed, and the release says so."""
    add_fleet(plane, "a", arch="")
    plane.add_release()
    plane.settle()
    assert phases(plane) == {"a": "Pending"}
    assert message(plane, "a") == "the node does not say its os and arch"


def test_a_timeout_halts_the_release_and_takes_all_its_requests_back(plane: PlaneInMemory) -> None:
    """After the first failure no further node is asked, and no node goes on downloading."""
    add_fleet(plane, "abcd")
    plane.add_release(concurrency=2, healthGate={"minHealthySeconds": 300, "timeoutSeconds": 100})
    plane.settle()
    pass_time(plane, 50, b="2.0.0")
    pass_time(plane, 50)
    assert set(asked(plane)) == {"a", "b"}
    pass_time(plane, 10)
    assert plane.release().status.phase is ReleasePhase.FAILED
    assert condition(plane, "Halted") == "True/NodeUpdateTimeout"
    assert phases(plane) == {"a": "Failed", "b": "Updating", "c": "Pending", "d": "Pending"}
    assert asked(plane) == {}
    pass_time(plane, 600, a="2.0.0")
    assert plane.release().status.phase is ReleasePhase.FAILED
    assert asked(plane) == {}


def test_a_node_that_soaks_does_not_time_out(plane: PlaneInMemory) -> None:
    """The deadline is for becoming healthy; a soak longer than the deadline is allowed to end."""
    add_fleet(plane, "a")
    plane.add_release(healthGate={"minHealthySeconds": 200, "timeoutSeconds": 100})
    plane.settle()
    pass_time(plane, 210, a="2.0.0")
    assert plane.release().status.phase is ReleasePhase.SUCCEEDED


def test_a_pause_takes_requests_back_and_resuming_asks_anew(plane: PlaneInMemory) -> None:
    """No node starts an update of a paused release, and the deadline runs from the second request."""
    add_fleet(plane)
    plane.add_release(healthGate={"timeoutSeconds": 300})
    plane.settle()
    plane.write_spec(AGENT_RELEASES, "release", {"paused": True})
    plane.settle()
    assert plane.release().status.phase is ReleasePhase.PAUSED
    assert (asked(plane), set(phases(plane).values())) == ({}, {"Pending"})
    pass_time(plane, 1000)
    plane.write_spec(AGENT_RELEASES, "release", {"paused": False})
    plane.settle()
    assert asked(plane) == {"a": "2.0.0"}
    pass_time(plane, 290)
    assert plane.release().status.phase is ReleasePhase.IN_PROGRESS


def test_withdrawing_approval_takes_requests_back(plane: PlaneInMemory) -> None:
    """Approval is needed all the time, not once."""
    add_fleet(plane)
    plane.add_release()
    plane.settle()
    plane.write_spec(AGENT_RELEASES, "release", {"approved": False})
    plane.settle()
    assert plane.release().status.phase is ReleasePhase.AWAITING_APPROVAL
    assert asked(plane) == {}


def test_deleting_a_release_takes_its_requests_back(plane: PlaneInMemory) -> None:
    """A node does not go on fetching what nobody wants any more."""
    add_fleet(plane)
    plane.add_release()
    plane.settle()
    plane.delete(AGENT_RELEASES, "release")
    plane.settle()
    assert asked(plane) == {}
    assert plane.node("a").metadata.annotations == {}


def test_a_node_that_leaves_the_selection_is_asked_no_more(plane: PlaneInMemory) -> None:
    """Labels count at any time."""
    plane.add_node("a", labels={"ring": "0"}, **OLD)
    plane.add_release(selector={"matchLabels": {"ring": "0"}})
    plane.settle()
    plane.write_metadata(FLEET_NODES, "a", {"labels": {"ring": "1"}})
    plane.settle()
    assert (asked(plane), phases(plane)) == ({}, {})


def test_two_releases_never_ask_one_node_at_a_time(plane: PlaneInMemory) -> None:
    """The older release has the node until it is done with it; then the newer one asks."""
    add_fleet(plane, "a")
    plane.add_release("first")
    plane.clock.move(1)
    plane.add_release("second", version="3.0.0")
    plane.settle()
    for _ in range(3):
        pass_time(plane, 10)
        assert asked(plane) == {"a": "2.0.0"}
        assert phases(plane, "second") == {"a": "Pending"}
    pass_time(plane, 70, a="2.0.0")
    assert plane.release("first").status.phase is ReleasePhase.SUCCEEDED
    assert asked(plane) == {"a": "3.0.0"}


def test_a_request_of_somebody_else_is_never_overwritten(plane: PlaneInMemory) -> None:
    """Its node is asked once it has answered that request."""
    foreign = {"targetVersion": "1.5.0", "url": "https://elsewhere/x", "sha256": "c" * 64}
    add_fleet(plane, "a", updateRequest=foreign)
    plane.add_release()
    plane.settle()
    pass_time(plane, 100)
    assert asked(plane) == {"a": "1.5.0"}
    pass_time(plane, 10, a="1.5.0")
    assert asked(plane) == {"a": "2.0.0"}


def test_a_request_that_got_lost_is_placed_again(plane: PlaneInMemory) -> None:
    """A node that was deleted and registered itself again in mid-update is still to be updated."""
    add_fleet(plane, "a")
    plane.add_release()
    plane.settle()
    plane.delete(FLEET_NODES, "a")
    add_fleet(plane, "a")
    plane.settle()
    assert asked(plane) == {"a": "2.0.0"}


def test_a_release_without_nodes_waits_for_them(plane: PlaneInMemory) -> None:
    """None of none is not all: the fleet may still be starting."""
    plane.add_release()
    plane.settle()
    assert plane.release().status.phase is ReleasePhase.IN_PROGRESS
    add_fleet(plane, "a")
    plane.settle()
    assert phases(plane) == {"a": "Updating"}


def test_finished_releases_are_final(plane: PlaneInMemory) -> None:
    """A node that comes later is not visited by a release that has succeeded."""
    add_fleet(plane, "a", agentVersion="2.0.0")
    plane.add_release(healthGate={"minHealthySeconds": 0})
    plane.settle()
    assert plane.release().status.phase is ReleasePhase.SUCCEEDED
    add_fleet(plane, "b")
    plane.settle()
    assert asked(plane) == {}


def test_a_release_that_follows_a_failed_one_goes_through(plane: PlaneInMemory) -> None:
    """What a halted release leaves behind is in nobody's way."""
    add_fleet(plane)
    plane.add_release("bad", healthGate={"timeoutSeconds": 60})
    plane.settle()
    pass_time(plane, 70)
    assert plane.release("bad").status.phase is ReleasePhase.FAILED
    plane.add_release("good", version="2.0.1", concurrency=3)
    plane.settle()
    pass_time(plane, 70, a="2.0.1", b="2.0.1", c="2.0.1")
    assert plane.release("good").status.phase is ReleasePhase.SUCCEEDED


def test_a_soak_that_was_paused_starts_over(plane: PlaneInMemory) -> None:
    """Nobody watched in the meantime."""
    add_fleet(plane, "a")
    plane.add_release()
    plane.settle()
    pass_time(plane, 30, a="2.0.0")
    plane.write_spec(AGENT_RELEASES, "release", {"paused": True})
    plane.settle()
    plane.write_spec(AGENT_RELEASES, "release", {"paused": False})
    plane.settle()
    pass_time(plane, 50)
    assert phases(plane) == {"a": NodeUpdatePhase.PENDING.value}
    pass_time(plane, 20)
    assert phases(plane) == {"a": NodeUpdatePhase.UPDATED.value}


def test_a_settled_rollout_writes_nothing(plane: PlaneInMemory) -> None:
    """In any phase, passes without news leave every resourceVersion as it is."""
    add_fleet(plane, "ab")
    add_fleet(plane, "c", phase="Draining")
    plane.add_release("running")
    plane.add_release("paused", paused=True)
    plane.add_release("unapproved", approved=False)
    plane.settle()
    before = plane.store.version()
    for _ in range(5):
        plane.clock.move(5)
        assert plane.make_pass() == 0
    assert plane.store.version() == before
