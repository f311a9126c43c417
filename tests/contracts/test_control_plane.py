"""The contract of `ControlPlane`, for HTTP against a real plane and for the fake alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.system_clock import SystemClock
from journeyman.errors import ConflictError, ExpiredError, NotFoundError
from journeyman.ports import Collection, ControlPlane, WatchEvent
from journeyman.settings import Settings
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.plane import RunningPlane, agentic_task, fleet_node, running_plane

NODES = Collection("foreman.llmkube.dev", "v1alpha1", "fleetnodes")
TASKS = Collection("foreman.llmkube.dev", "v1alpha1", "agentictasks", "default")
# Nothing reconciles models, so that only the test writes them.
MODELS = Collection("inference.llmkube.dev", "v1alpha1", "models", "default")
ALL_TASKS = Collection("foreman.llmkube.dev", "v1alpha1", "agentictasks")
DEADLINE_SECONDS = 20.0


class Opener(Protocol):
    """Opens the port under test, empty."""

    def __call__(self) -> AbstractAsyncContextManager[ControlPlane]: ...


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    with running_plane(tmp_path_factory.mktemp("contract")) as running:
        yield running


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A kube-apiserver joins in where it was asked for."""
    if "opened" in metafunc.fixturenames:
        adapters = ["fake", pytest.param("http", marks=pytest.mark.slow)]
        if metafunc.config.getoption("--real-apiserver"):
            adapters.append(pytest.param("real", marks=pytest.mark.slow))
        metafunc.parametrize("opened", adapters, indirect=True)


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Opener:
    @asynccontextmanager
    async def fake() -> AsyncIterator[ControlPlane]:
        yield FakeControlPlane()

    @asynccontextmanager
    async def http() -> AsyncIterator[ControlPlane]:
        if request.param == "real":
            kubeconfig = request.getfixturevalue("real_kubeconfig")
            settings = Settings(state_root=Path("/nowhere"), kubeconfig=kubeconfig)
        else:
            running: RunningPlane = request.getfixturevalue("plane")
            settings = Settings(
                state_root=Path("/nowhere"), server=running.url, token_file=running.token_file
            )
        control_plane = HttpControlPlane(settings, SystemClock(), version="0")
        for collection in (NODES, TASKS, MODELS):
            for item in (await control_plane.list(collection)).items:
                await control_plane.delete(collection.named(item["metadata"]["name"]))
        try:
            yield control_plane
        finally:
            await control_plane.aclose()

    return fake if request.param == "fake" else http


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await test

    asyncio.run(bounded())


def node(name: str, **labels: str) -> dict[str, Any]:
    body = fleet_node(name)
    return {
        "apiVersion": "foreman.llmkube.dev/v1alpha1",
        "kind": "FleetNode",
        **body,
        "metadata": {"name": name, "labels": labels},
    }


def model(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name, "labels": labels},
        "spec": {"source": "https://models.example/a.gguf"},
    }


def task(name: str) -> dict[str, Any]:
    return {"apiVersion": "foreman.llmkube.dev/v1alpha1", "kind": "AgenticTask", **agentic_task(name)}


def test_a_created_object_can_be_read_and_has_an_identity(opened: Opener) -> None:
    """A create returns the object as stored; a get returns it again."""

    async def scenario() -> None:
        async with opened() as control_plane:
            created = await control_plane.create(NODES, node("a", zone="attic"))
            metadata = created["metadata"]
            assert metadata["uid"]
            assert metadata["resourceVersion"]
            assert metadata["creationTimestamp"].endswith("Z")
            assert (await control_plane.get(NODES.named("a")))["metadata"]["uid"] == metadata["uid"]

    run(scenario())


def test_a_status_in_a_create_is_dropped(opened: Opener) -> None:
    """Status is written through its subresource alone."""

    async def scenario() -> None:
        async with opened() as control_plane:
            created = await control_plane.create(NODES, {**node("a"), "status": {"phase": "Ready"}})
            assert "phase" not in created.get("status", {})

    run(scenario())


def test_a_taken_name_is_a_conflict(opened: Opener) -> None:
    """A second create of one name changes nothing."""

    async def scenario() -> None:
        async with opened() as control_plane:
            first = await control_plane.create(NODES, node("a"))
            with pytest.raises(ConflictError) as caught:
                await control_plane.create(NODES, node("a"))
            assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")
            assert (await control_plane.get(NODES.named("a")))["metadata"]["uid"] == first["metadata"]["uid"]

    run(scenario())


def test_what_does_not_exist_is_not_found(opened: Opener) -> None:
    """Get, patch and delete agree on it."""

    async def scenario() -> None:
        async with opened() as control_plane:
            for call in (
                control_plane.get(NODES.named("a")),
                control_plane.patch(NODES.named("a"), {"spec": {"roles": ["worker"]}}),
                control_plane.patch(NODES.named("a"), {"status": {"phase": "Ready"}}, subresource="status"),
                control_plane.delete(NODES.named("a")),
            ):
                with pytest.raises(NotFoundError) as caught:
                    await call
                assert (caught.value.status, caught.value.reason) == (404, "NotFound")

    run(scenario())


def test_a_merge_patch_merges_replaces_and_deletes(opened: Opener) -> None:
    """RFC 7386: objects merge, null removes, lists are replaced."""

    async def scenario() -> None:
        async with opened() as control_plane:
            await control_plane.create(NODES, node("a", keep="1", drop="1"))
            patch = {"metadata": {"labels": {"drop": None, "new": "1"}}, "spec": {"roles": ["worker"]}}
            patched = await control_plane.patch(NODES.named("a"), patch)
            assert patched["metadata"]["labels"] == {"keep": "1", "new": "1"}
            assert patched["spec"]["roles"] == ["worker"]
            assert patched["spec"]["nodeName"] == "a"

    run(scenario())


def test_spec_and_status_are_patched_apart(opened: Opener) -> None:
    """A patch of one never touches the other."""

    async def scenario() -> None:
        async with opened() as control_plane:
            await control_plane.create(NODES, node("a"))
            both = {"spec": {"roles": ["worker"]}, "status": {"agentVersion": "1"}}
            main = await control_plane.patch(NODES.named("a"), both)
            assert main["spec"]["roles"] == ["worker"]
            assert "agentVersion" not in main.get("status", {})
            both = {"spec": {"roles": ["verifier"]}, "status": {"agentVersion": "2"}}
            status = await control_plane.patch(NODES.named("a"), both, subresource="status")
            assert status["spec"]["roles"] == ["worker"]
            assert status["status"]["agentVersion"] == "2"

    run(scenario())


def test_a_resource_version_makes_a_patch_a_compare_and_set(opened: Opener) -> None:
    """Of two writers from one view, the second is told."""

    async def scenario() -> None:
        async with opened() as control_plane:
            seen = (await control_plane.create(MODELS, model("m")))["metadata"]["resourceVersion"]
            change = {"metadata": {"resourceVersion": seen}, "status": {"size": "1"}}
            won = await control_plane.patch(MODELS.named("m"), change, subresource="status")
            assert won["metadata"]["resourceVersion"] != seen
            with pytest.raises(ConflictError) as caught:
                await control_plane.patch(MODELS.named("m"), change, subresource="status")
            assert (caught.value.status, caught.value.reason) == (409, "Conflict")

    run(scenario())


def test_a_patch_that_changes_nothing_keeps_the_resource_version(opened: Opener) -> None:
    """Nobody who watches is woken for nothing."""

    async def scenario() -> None:
        async with opened() as control_plane:
            created = await control_plane.create(MODELS, model("a"))
            again = await control_plane.patch(MODELS.named("a"), {"spec": model("a")["spec"]})
            assert again["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]

    run(scenario())


def test_a_list_holds_what_the_selector_selects(opened: Opener) -> None:
    """By equality, by existence, and everything without a selector."""

    async def scenario() -> None:
        async with opened() as control_plane:
            await control_plane.create(NODES, node("b", zone="attic", gpu="1"))
            await control_plane.create(NODES, node("a", zone="cellar"))
            for selector, expected in (
                ("", ["a", "b"]),
                ("zone=attic", ["b"]),
                ("zone=attic,gpu", ["b"]),
                ("gpu", ["b"]),
                ("zone=none", []),
            ):
                found = await control_plane.list(NODES, label_selector=selector)
                assert [item["metadata"]["name"] for item in found.items] == expected

    run(scenario())


def test_namespaced_objects_are_listed_by_namespace_and_across(opened: Opener) -> None:
    """A collection without a namespace means all of them."""

    async def scenario() -> None:
        async with opened() as control_plane:
            await control_plane.create(TASKS, task("t"))
            for collection in (TASKS, ALL_TASKS):
                (item,) = (await control_plane.list(collection)).items
                assert item["metadata"]["namespace"] == "default"

    run(scenario())


def test_a_watch_goes_on_from_a_list(opened: Opener) -> None:
    """Nothing between the list and the watch is missed, and nothing before it comes again."""

    async def scenario() -> None:
        async with opened() as control_plane:
            await control_plane.create(MODELS, model("old"))
            version = (await control_plane.list(MODELS)).resource_version
            await control_plane.create(MODELS, model("a"))
            await control_plane.patch(MODELS.named("a"), {"metadata": {"labels": {"a": "b"}}})
            await control_plane.delete(MODELS.named("a"))
            seen: list[tuple[str, str]] = []
            events = control_plane.watch(MODELS, resource_version=version)
            async for event in events:
                if event.type != "BOOKMARK":
                    seen.append((event.type, event.object["metadata"]["name"]))
                if len(seen) == 3:
                    break
            await close(events)
            assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]

    run(scenario())


def test_a_watch_yields_what_happens_while_it_is_open(opened: Opener) -> None:
    """A write wakes the watcher."""

    async def scenario() -> None:
        async with opened() as control_plane:
            version = (await control_plane.list(MODELS)).resource_version
            events = control_plane.watch(MODELS, resource_version=version, label_selector="zone=attic")
            first = asyncio.create_task(next_change(events))
            await control_plane.create(MODELS, model("other", zone="cellar"))
            await control_plane.create(MODELS, model("a", zone="attic"))
            assert (await first).object["metadata"]["name"] == "a"
            await close(events)

    run(scenario())


async def next_change(events: AsyncIterator[WatchEvent]) -> WatchEvent:
    while (event := await anext(events)).type == "BOOKMARK":
        pass
    return event


async def close(events: AsyncIterator[WatchEvent]) -> None:
    """Ends the stream now and not when the garbage collector finds it."""
    assert hasattr(events, "aclose")
    await events.aclose()


def test_no_offset_is_known_before_a_reply(opened: Opener) -> None:
    """Without a reply, and between clocks of one host, the offset is zero."""

    async def scenario() -> None:
        async with opened() as control_plane:
            assert control_plane.clock_offset_seconds() == 0.0
            await control_plane.list(NODES)
            assert control_plane.clock_offset_seconds() == 0.0

    run(scenario())


def test_the_fake_forgets_on_demand() -> None:
    """A compacted history ends a watch with ExpiredError, as test_http_control_plane shows for HTTP."""

    async def scenario() -> None:
        fake = FakeControlPlane()
        await fake.create(NODES, node("a"))
        fake.forget_history()
        with pytest.raises(ExpiredError):
            await anext(fake.watch(NODES, resource_version="0"))

    run(scenario())


def test_the_fake_fails_as_told() -> None:
    """A script fails single calls; a loss fails all, open watches included, until it is over."""

    async def scenario() -> None:
        fake = FakeControlPlane()
        fake.fail("create", None, ConflictError("scripted"))
        version = (await fake.create(NODES, node("a")))["metadata"]["resourceVersion"]
        with pytest.raises(ConflictError, match="scripted"):
            await fake.create(NODES, node("b"))
        watching = asyncio.ensure_future(anext(fake.watch(NODES, resource_version=version)))
        await asyncio.sleep(0)
        await fake.lose(NotFoundError("lost"))
        with pytest.raises(NotFoundError, match="lost"):
            await watching
        with pytest.raises(NotFoundError, match="lost"):
            await fake.get(NODES.named("a"))
        fake.down = None
        assert (await fake.get(NODES.named("a")))["metadata"]["name"] == "a"
        assert fake.calls == [("create", ""), ("create", ""), ("watch", ""), ("get", "a"), ("get", "a")]

    run(scenario())
