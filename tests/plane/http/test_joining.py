"""A join token is good for one node, once, for a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from journeyman.model.meta import format_time
from tests.support.clock import FakeClock
from tests.support.joined import ask_to_join, join_token, joined, new_credential
from tests.support.plane import (
    FOREMAN,
    MERGE_PATCH,
    TRUSTS_NOBODY,
    RunningPlane,
    fleet_node,
    http_client,
    running_plane,
)

NODES = f"{FOREMAN}/fleetnodes"
SECRETS = "/api/v1/namespaces/foreman-system/secrets"


def test_a_token_is_spent_by_one_of_many(plane: RunningPlane) -> None:
    """Of many machines that come with one token at once exactly one gets in."""
    token = join_token(plane)
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda n: ask_to_join(plane, token, f"node-{n}").status_code, range(8)))
    assert sorted(replies) == [201] + [401] * 7


def test_a_lost_answer_is_asked_for_again(plane: RunningPlane) -> None:
    """The same credential with the spent token gets the same answer; another credential gets none."""
    token, credential = join_token(plane), new_credential("desk")
    first, again = (ask_to_join(plane, token, "desk", credential=credential) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert ask_to_join(plane, token, "desk").status_code == 401


def test_the_answer_carries_the_release_key(plane: RunningPlane) -> None:
    """A node learns with its join which key signs the releases of the plane."""
    facts = ask_to_join(plane, join_token(plane), "desk").json()
    assert facts["releaseKey"] == (plane.data_dir / "release.pub").read_text()


@pytest.mark.parametrize(
    "token", ["admin", "join.0000000000." + "x" * 43, "nonsense", "node.desk." + "x" * 43]
)
def test_a_wrong_token_admits_nobody(plane: RunningPlane, token: str) -> None:
    """What is no join token of this plane is answered with 401, and leaves nothing."""
    assert ask_to_join(plane, token, "desk").status_code == 401
    with plane.client() as admin:
        assert admin.get(SECRETS).json()["items"] == []


def test_a_token_for_one_name_admits_no_other(plane: RunningPlane) -> None:
    """A token that was minted for a name admits that name alone, and is not spent by another one's try."""
    token = join_token(plane, node="desk")
    assert ask_to_join(plane, token, "attic").status_code == 403
    assert ask_to_join(plane, token, "desk").status_code == 201


def test_only_a_token_for_its_name_replaces_a_node(plane: RunningPlane) -> None:
    """A token for anyone does not take over the name of a node that has joined; one for that name does."""
    with joined(plane, "desk") as old:
        token = join_token(plane)
        assert ask_to_join(plane, token, "desk").status_code == 409
        assert ask_to_join(plane, token, "attic").status_code == 201
        assert ask_to_join(plane, join_token(plane, node="desk"), "desk").status_code == 201
        assert old.get("/version").status_code == 401


def test_a_name_that_beats_is_not_given_away(plane: RunningPlane) -> None:
    """While another installation's heartbeat is fresh nobody joins under its name; the same one may."""
    beat = {"status": {"phase": "Ready", "lastHeartbeatTime": format_time(datetime.now(UTC))}}
    node = fleet_node("desk")
    node["metadata"]["annotations"] = {"journeyman.dev/instance": "instance-9"}
    with plane.client() as admin:
        assert admin.post(NODES, json=node).is_success
        assert admin.patch(f"{NODES}/desk/status", json=beat, headers=MERGE_PATCH).is_success
    token = join_token(plane)
    refused = ask_to_join(plane, token, "desk")
    assert (refused.status_code, refused.json()["reason"]) == (409, "NameTaken")
    assert ask_to_join(plane, token, "desk", instance="instance-9").status_code == 201


def test_nothing_at_rest_admits_anybody(plane: RunningPlane) -> None:
    """The database holds neither a join token nor a credential, only hashes of them."""
    token, credential = join_token(plane), new_credential("desk")
    ask_to_join(plane, join_token(plane), "desk", credential=credential)
    kept = b"".join(path.read_bytes() for path in plane.data_dir.glob("plane.db*"))
    for secret in (token, credential):
        assert secret.rpartition(".")[2].encode() not in kept


def test_revoking_ends_a_credential(plane: RunningPlane) -> None:
    """A credential that the admin revokes is refused from then on, and a second time there is none."""
    with joined(plane, "desk") as node, plane.client() as admin:
        assert node.get("/version").is_success
        assert admin.delete("/node-credentials/desk").is_success
        assert node.get("/version").status_code == 401
        assert admin.delete("/node-credentials/desk").status_code == 404


@pytest.mark.parametrize(
    "asked",
    [{"ttlSeconds": 0}, {"ttlSeconds": "1h"}, {"ttlSeconds": 10**9}, {"node": "No Name"}, {"node": 7}],
)
def test_a_token_that_cannot_be_is_not_minted(plane: RunningPlane, asked: dict[str, object]) -> None:
    """A life or a name that cannot be is answered with 400."""
    with plane.client() as admin:
        assert admin.post("/join-tokens", json=asked).status_code == 400


@pytest.mark.parametrize("credential", ["node.attic." + "x" * 43, "node.desk.short", "desk"])
def test_a_weak_or_foreign_credential_is_refused(plane: RunningPlane, credential: str) -> None:
    """A credential must be for the name that joins, and long; otherwise the token is not spent."""
    token = join_token(plane)
    assert ask_to_join(plane, token, "desk", credential=credential).status_code == 400
    assert ask_to_join(plane, token, "desk").status_code == 201


def test_a_plane_without_tls_has_no_ca(plane: RunningPlane) -> None:
    """The CA is served to anybody, and is not found where there is none."""
    assert httpx.get(f"{plane.url}/ca.crt", verify=TRUSTS_NOBODY).status_code == 404


@pytest.mark.slow
def test_an_old_token_has_expired_and_goes(tmp_path: Path) -> None:
    """A token admits nobody after its time, and the next one that is minted sweeps it away."""
    clock = FakeClock(datetime.now(UTC))
    with running_plane(tmp_path, clock) as plane:
        token = join_token(plane, ttlSeconds=60)
        clock.move(61)
        refused = ask_to_join(plane, token, "desk")
        assert (refused.status_code, refused.json()["message"]) == (401, "the join token has expired")
        fresh = join_token(plane)
        with plane.client() as admin:
            assert len(admin.get(SECRETS).json()["items"]) == 1
        credential = new_credential("desk")
        assert ask_to_join(plane, fresh, "desk", credential=credential).status_code == 201
    with running_plane(tmp_path, clock) as again, http_client(again.url, credential) as node:
        assert node.get("/version").is_success
