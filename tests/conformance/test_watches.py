"""Watches: events in order, resuming, bookmarks, selectors, and the 410 in a stream that began with 200."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.kinds import CONFIGMAPS, MODELS, configmap, model
from tests.support.api_server import ApiServer

pytestmark = pytest.mark.slow
ONLY = {"labelSelector": "conformance=watch"}
LABELS = {"conformance": "watch"}
# Long enough for what a test does meanwhile; each test ends its watch as soon as it has seen enough.
LONG = {"timeoutSeconds": "120"}


def version_of(server: ApiServer) -> str:
    listed = server.call("GET", MODELS, record=False, query=ONLY).json()
    return str(listed["metadata"]["resourceVersion"])


def shown(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"].removeprefix("conformance-")


def test_events_come_in_order(server: ApiServer) -> None:
    """From a version on: ADDED, MODIFIED by object and by status, DELETED with the last state."""
    version = version_of(server)
    path = f"{MODELS}/conformance-w"
    with server.watching(MODELS, resourceVersion=version, **ONLY, **LONG) as events:
        server.made(MODELS, model("conformance-w", LABELS))
        server.call("PATCH", path, {"spec": {"format": "mlx"}})
        server.call("PATCH", f"{path}/status", {"status": {"phase": "Ready"}})
        server.call("DELETE", path)
        seen = [next(events) for _ in range(4)]
    assert [each["type"] for each in seen] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert seen[2]["object"]["status"] == {"phase": "Ready"}
    assert seen[3]["object"]["status"] == {"phase": "Ready"}
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in seen]
    assert versions == sorted(set(versions))


def test_a_watch_resumes(server: ApiServer) -> None:
    """From the version of an event on, nothing is missed and nothing is seen twice."""
    version = version_of(server)
    for name in ("a", "b", "c"):
        server.made(MODELS, model(f"conformance-{name}", LABELS))
    with server.watching(MODELS, resourceVersion=version, **ONLY, **LONG) as events:
        first = next(events)
    resumed = first["object"]["metadata"]["resourceVersion"]
    with server.watching(MODELS, resourceVersion=resumed, **ONLY, **LONG) as events:
        assert [shown(next(events)) for _ in range(2)] == [("ADDED", "b"), ("ADDED", "c")]


def test_a_watch_without_a_version_begins_with_what_is_there(server: ApiServer) -> None:
    """Without a version, or with 0, each object is ADDED first."""
    server.made(MODELS, model("conformance-there", LABELS))
    for query in ({}, {"resourceVersion": "0"}):
        with server.watching(MODELS, **query, **ONLY, **LONG) as events:
            assert shown(next(events)) == ("ADDED", "there")


def test_a_selection_is_entered_and_left(server: ApiServer) -> None:
    """An object that begins to match is ADDED, and one that ends to match is DELETED."""
    version = version_of(server)
    path = f"{MODELS}/conformance-moves"
    with server.watching(MODELS, resourceVersion=version, **ONLY, **LONG) as events:
        server.made(MODELS, model("conformance-moves"))
        server.call("PATCH", path, {"metadata": {"labels": LABELS}})
        server.call("PATCH", path, {"metadata": {"labels": {"conformance": None}}})
        assert [shown(next(events)) for _ in range(2)] == [("ADDED", "moves"), ("DELETED", "moves")]


def test_one_name_can_be_watched(server: ApiServer) -> None:
    """A field selector on the name leaves out all others."""
    version = version_of(server)
    chosen = {"fieldSelector": "metadata.name=conformance-chosen"}
    with server.watching(MODELS, resourceVersion=version, **chosen, **LONG) as events:
        server.made(MODELS, model("conformance-other"))
        server.made(MODELS, model("conformance-chosen"))
        assert shown(next(events)) == ("ADDED", "chosen")


def test_a_quiet_watch_gets_a_bookmark_before_it_ends(server: ApiServer) -> None:
    """A watch that asks for bookmarks gets one before its time is over, so that it can resume there."""
    version = version_of(server)
    asked = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "4"}
    with server.watching(MODELS, **asked, labelSelector="conformance=nothing") as events:
        server.made(MODELS, model("conformance-quiet"))
        seen = list(events)
    assert {each["type"] for each in seen} == {"BOOKMARK"}
    last = seen[-1]["object"]
    assert (last["kind"], last["apiVersion"]) == ("Model", "inference.llmkube.dev/v1alpha1")
    assert int(last["metadata"]["resourceVersion"]) > int(version)


def test_nobody_gets_bookmarks_unasked(server: ApiServer) -> None:
    """Without allowWatchBookmarks a quiet watch ends with nothing said."""
    asked = {"resourceVersion": version_of(server), "timeoutSeconds": "2"}
    with server.watching(MODELS, **asked, labelSelector="conformance=nothing") as events:
        assert list(events) == []


def test_a_version_that_is_too_old_is_410_in_the_stream(server: ApiServer) -> None:
    """A watch from before the log begins with 200, and its first event is an ERROR with a 410 Expired."""
    server.made(CONFIGMAPS, configmap("conformance-busy"))
    for count in range(100):
        patch = {"data": {"count": str(count)}}
        server.call("PATCH", f"{CONFIGMAPS}/conformance-busy", patch, record=False)
    with server.watching(MODELS, resourceVersion="1", **LONG) as events:
        seen = list(events)
    assert [each["type"] for each in seen] == ["ERROR"]
    status = seen[0]["object"]
    assert (status["kind"], status["reason"], status["code"]) == ("Status", "Expired", 410)


def test_a_version_that_is_no_number_is_refused(server: ApiServer) -> None:
    """A watch from nonsense ends before it begins, with a Status; which code it has differs by release."""
    reply = server.call("GET", MODELS, query={"watch": "true", "resourceVersion": "abc"}, record=False)
    assert not reply.is_success
    assert reply.json()["kind"] == "Status"
