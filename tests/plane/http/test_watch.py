"""Watches over a real connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman_plane.ports import Key
from tests.support.plane import MERGE_PATCH, RunningPlane, running_plane

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@contextmanager
def watching(
    client: httpx.Client, path: str = CONFIGMAPS, **parameters: Any
) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a watch, as they come; the stream is bounded by the timeout of the client."""
    with client.stream("GET", path, params={"watch": "true", **parameters}, timeout=20) as reply:
        assert reply.status_code == 200, reply.read()
        yield (json.loads(line) for line in reply.iter_lines())


def make(client: httpx.Client, name: str, **labels: str) -> str:
    """Makes a ConfigMap, and returns its resourceVersion."""
    reply = client.post(CONFIGMAPS, json={"metadata": {"name": name, "labels": labels}})
    version: str = reply.json()["metadata"]["resourceVersion"]
    return version


def shown(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


def test_it_resumes_after_a_version(client: httpx.Client) -> None:
    """A watch from a resourceVersion sees every later change, in order, and none before."""
    make(client, "before")
    version = make(client, "last")
    make(client, "new")
    client.patch(f"{CONFIGMAPS}/new", json={"data": {"a": "1"}}, headers=MERGE_PATCH)
    client.delete(f"{CONFIGMAPS}/before")
    with watching(client, resourceVersion=version) as events:
        assert [shown(next(events)) for _ in range(3)] == [
            ("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "before"),
        ]  # fmt: skip


def test_without_a_version_it_begins_with_what_is_there(client: httpx.Client) -> None:
    """A watch without resourceVersion begins with an ADDED for each object, then follows."""
    make(client, "here")
    with watching(client) as events:
        assert shown(next(events)) == ("ADDED", "here")
        make(client, "later")
        assert shown(next(events)) == ("ADDED", "later")


def test_initial_events_end_with_a_bookmark(client: httpx.Client) -> None:
    """With sendInitialEvents a watch streams the objects and then a bookmark that says that this was all."""
    make(client, "here")
    parameters = {
        "resourceVersion": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with watching(client, **parameters) as events:
        assert shown(next(events)) == ("ADDED", "here")
        bookmark = next(events)
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_objects_enter_and_leave_a_selection(client: httpx.Client) -> None:
    """With a label selector an object is ADDED when it comes to match and DELETED when it no longer does."""
    version = make(client, "other")
    with watching(client, resourceVersion=version, labelSelector="room=attic") as events:
        make(client, "mine")
        for label in ("attic", "attic", "cellar"):
            patch = {"metadata": {"labels": {"room": label}}, "data": {"n": label}}
            client.patch(f"{CONFIGMAPS}/mine", json=patch, headers=MERGE_PATCH)
        client.patch(
            f"{CONFIGMAPS}/mine", json={"metadata": {"labels": {"room": "attic"}}}, headers=MERGE_PATCH
        )
        client.delete(f"{CONFIGMAPS}/mine")
        assert [next(events)["type"] for _ in range(4)] == ["ADDED", "DELETED", "ADDED", "DELETED"]


def test_a_namespace_hears_of_itself_alone(client: httpx.Client) -> None:
    """A watch of one namespace does not see the changes of another."""
    version = make(client, "first")
    client.post("/api/v1/namespaces/foreman-system/configmaps", json={"metadata": {"name": "foreign"}})
    make(client, "mine")
    with watching(client, resourceVersion=version) as events:
        assert shown(next(events)) == ("ADDED", "mine")
    with watching(client, "/api/v1/configmaps", resourceVersion=version) as events:
        assert shown(next(events)) == ("ADDED", "foreign")


@pytest.mark.slow
def test_bookmarks_and_the_timeout(tmp_path: Path) -> None:
    """A quiet watch gets bookmarks with the newest version if it asks for them, and ends by its timeout."""
    with running_plane(tmp_path, bookmark_seconds=0.2) as plane, plane.client() as client:
        version = make(client, "first")
        client.post("/api/v1/namespaces/default/secrets", json={"metadata": {"name": "elsewhere"}})
        with watching(
            client, resourceVersion=version, timeoutSeconds=1, allowWatchBookmarks="true"
        ) as events:
            seen = list(events)
        assert {event["type"] for event in seen} == {"BOOKMARK"}
        assert int(seen[-1]["object"]["metadata"]["resourceVersion"]) > int(version)
        with watching(client, resourceVersion=version, timeoutSeconds=1) as events:
            assert list(events) == []


@pytest.mark.slow
def test_a_version_that_is_too_old_is_410(tmp_path: Path) -> None:
    """A watch from before the log, or from the future of another store, begins with 200 and says 410."""
    with running_plane(tmp_path, history=4) as plane, plane.client() as client:
        version = make(client, "first")
        for count in range(20):
            client.patch(f"{CONFIGMAPS}/first", json={"data": {"n": str(count)}}, headers=MERGE_PATCH)
        for wanted in (version, "999999"):
            with watching(client, resourceVersion=wanted) as events:
                (only,) = events
            assert (only["type"], only["object"]["code"], only["object"]["reason"]) == (
                "ERROR",
                410,
                "Expired",
            )


@pytest.mark.slow
def test_a_watch_that_falls_behind_ends_with_410(tmp_path: Path) -> None:
    """When the log is compacted past an open watch, its 200 stream ends with an ERROR event of code 410."""
    with running_plane(tmp_path, history=4) as plane, plane.client() as client:
        version = make(client, "first")
        with watching(client, resourceVersion=version) as events:
            burst(plane)
            seen = list(events)
        assert seen[-1]["type"] == "ERROR"
        assert (seen[-1]["object"]["code"], seen[-1]["object"]["reason"]) == (410, "Expired")


def burst(plane: RunningPlane) -> None:
    """Writes more than the log keeps while nobody else gets at the store: each watch stands still."""
    key = Key("", "configmaps", "default", "first")
    with plane.store._lock:
        for count in range(50):
            plane.store.patch(key, {"data": {"n": str(count)}})


@pytest.mark.parametrize(
    "parameters",
    [
        {"resourceVersion": "abc"},
        {"resourceVersion": "9" * 5000},
        {"timeoutSeconds": "-1"},
        {"labelSelector": "=="},
    ],
)
def test_parameters_that_cannot_be_read_are_400(client: httpx.Client, parameters: dict[str, str]) -> None:
    """A watch with a parameter that is no number or no selector is a BadRequest."""
    assert client.get(CONFIGMAPS, params={"watch": "true"} | parameters).json()["reason"] == "BadRequest"


def test_rows_for_kubectl(client: httpx.Client) -> None:
    """A watch that asks for tables gets one row an event, and the columns once."""
    version = make(client, "first")
    make(client, "a")
    make(client, "b")
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    parameters = {"watch": "true", "resourceVersion": version}
    with client.stream("GET", CONFIGMAPS, params=parameters, headers=accept, timeout=20) as reply:
        lines = reply.iter_lines()
        first, second = json.loads(next(lines)), json.loads(next(lines))
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][:2] == ["b", 0]
