"""Serving what the fleet asks for, with the control plane, time and processes under the test's control."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.durable_json import JsonFile
from journeyman.errors import ConflictError, UnauthorizedError, UnreachableError
from journeyman.loops.fleet_service_loop import FleetServices
from journeyman.model.inference import PLACED_ON
from journeyman.model.resources import INFERENCE_SERVICES, MODELS, Resource
from journeyman.ports import Collection, JsonObject
from journeyman.settings import Settings
from tests.agent.loops.test_model_server_loop import House, scenario
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.fake_models import model_file
from tests.support.services import SOURCE, model_object, service_object
from tests.support.waiting import eventually

OTHER = "https://models.example/other.gguf"


def collection(resource: Resource) -> Collection:
    return Collection(resource.group, resource.version, resource.plural, "default")


SERVICES, WEIGHTS = collection(INFERENCE_SERVICES), collection(MODELS)


class Fleet:
    """One host of a fleet; `serve` is an agent's life on it."""

    def __init__(self, folder: Path) -> None:
        self.house = House(folder)
        self.house.values |= {"models": (), "fleet_services": True}
        self.plane = FakeControlPlane()
        self.memory = JsonFile(folder / "fleet-services.json")
        self.house.store.stored = {each: model_file(each, sha256="a" * 64) for each in (SOURCE, OTHER)}
        self.has_metal = False

    @contextlib.asynccontextmanager
    async def serve(self, **changes: Any) -> AsyncIterator[FleetServices]:
        models = self.house.loop(**changes)
        services = FleetServices(
            plane=self.plane,
            clock=self.house.clock,
            settings=Settings(**{**self.house.values, **changes}),
            node_name="mine",
            has_metal=lambda: self.has_metal,
            models=models,
            memory=self.memory,
            saves_power=lambda: False,
        )
        self.house.told = services.models_changed
        services.load()
        models.adopt()
        running = [asyncio.create_task(loop) for loop in (models.run(), *services.loops())]
        try:
            await self.settle()
            yield services
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def settle(self) -> None:
        """Lets servers listen, and everybody tell what follows from that."""
        for _ in range(3):
            for number, record in enumerate(self.house.workers.known()):
                told = json.dumps({"base_url": f"http://127.0.0.1:{4000 + number}/v1"}).encode()
                self.house.workers.files_of(record.worker_id).setdefault("endpoint.json", told)
            await self.house.clock.run_for(1)

    async def apply(self, *objects: JsonObject) -> None:
        for body in objects:
            await self.plane.create(WEIGHTS if body["kind"] == "Model" else SERVICES, body)

    async def change(self, name: str = "chat", **spec: Any) -> None:
        await self.plane.patch(SERVICES.named(name), {"spec": spec})

    async def status(self, name: str = "chat") -> JsonObject:
        return dict((await self.plane.get(SERVICES.named(name))).get("status") or {})

    def running(self) -> list[str]:
        """The models of the servers that run."""
        known = self.house.workers.known()
        return [each.labels["model"] for each in known if self.house.workers.running(each)]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_a_service_comes_and_goes_with_its_object(fleet: Fleet) -> None:
    """Applied, its server comes up and its status says so; deleted, it is drained and ends."""

    async def play() -> None:
        async with fleet.serve() as services:
            assert services.snapshot() == []
            await fleet.apply(model_object(), service_object(endpoint={"port": 9000}))
            await fleet.settle()
            (served,) = services.served()
            assert (served.namespace, served.name, served.model) == ("default", "chat", "chat")
            assert (served.port, served.is_ready) == (9000, True)
            assert served.uid == (await fleet.plane.get(SERVICES.named("chat")))["metadata"]["uid"]
            status = await fleet.status()
            assert (status["phase"], status["readyReplicas"]) == ("Ready", 1)
            assert services.service_of("chat") == "default/chat"
            await fleet.plane.delete(SERVICES.named("chat"))
            await fleet.settle()
            assert (services.served(), fleet.running()) == ([], [])

    scenario(play)


@pytest.mark.parametrize(
    ("spec", "phase"), [({"suspend": True}, "Suspended"), ({"replicas": 0}, "Stopped")], ids=str
)
def test_people_stop_a_service_and_begin_it_anew(fleet: Fleet, spec: dict[str, Any], phase: str) -> None:
    """Its server ends and the status says why; another service does not notice."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object(), service_object("other"))
        async with fleet.serve() as services:
            await fleet.change(**spec)
            await fleet.settle()
            assert fleet.running() == ["other"]
            status = await fleet.status()
            assert (status["phase"], status["readyReplicas"]) == (phase, 0)
            assert status["schedulingStatus"] == phase
            await fleet.change(suspend=False, replicas=1)
            await fleet.settle()
            assert (await fleet.status())["phase"] == "Ready"
            assert "schedulingStatus" not in await fleet.status()
            assert sorted(each.name for each in services.served()) == ["chat", "other"]
            assert len(fleet.house.workers.started) == 3

    scenario(play)


def test_an_agent_that_cannot_reach_the_plane_goes_on_with_what_it_finds(fleet: Fleet) -> None:
    """What was ordered last is on disk: no server is ended or loaded anew, for as long as nobody answers."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object(contextSize=1024))
        async with fleet.serve():
            pass
        fleet.plane.down = UnreachableError("no answer")
        async with fleet.serve() as services:
            await fleet.house.clock.run_for(600)
            assert [each.is_ready for each in services.served()] == [True]
            assert (len(fleet.house.workers.started), fleet.house.workers.stopped) == (1, [])
            fleet.plane.down = None
            await fleet.house.clock.run_for(60)
            assert (await fleet.status())["phase"] == "Ready"
            assert (len(fleet.house.workers.started), fleet.house.workers.stopped) == (1, [])

    scenario(play)


def test_a_plane_that_goes_away_ends_nothing(fleet: Fleet) -> None:
    """A service that was deleted meanwhile ends once the plane can say so."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object())
        async with fleet.serve():
            fleet.plane.down = UnreachableError("no answer")
            await fleet.house.clock.run_for(600)
            assert fleet.running() == ["chat"]
            fleet.plane.down = None
            await fleet.plane.delete(SERVICES.named("chat"))
            await fleet.house.clock.run_for(60)
            assert fleet.running() == []

    scenario(play)


def test_the_host_that_does_not_ask_for_services_serves_none(fleet: Fleet) -> None:
    """Off is the default: the control plane is not even asked, and what once was served ends."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object())
        async with fleet.serve():
            assert fleet.running() == ["chat"]
        fleet.plane.calls.clear()
        async with fleet.serve(fleet_services=False) as services:
            assert (services.loops(), services.served(), fleet.running()) == ([], [], [])
            assert fleet.plane.calls == []

    scenario(play)


def test_another_model_is_loaded_in_place_of_the_last(fleet: Fleet) -> None:
    """A Model that names other weights, or a service that names another Model, is another server."""

    async def play() -> None:
        await fleet.apply(model_object(), model_object("others", source=OTHER), service_object())
        async with fleet.serve():
            await fleet.change(modelRef="others")
            await fleet.settle()
            assert fleet.running() == ["chat"]
            assert OTHER in fleet.house.workers.spec_of(fleet.house.last()).labels["config"]
            assert len(fleet.house.workers.started) == 2

    scenario(play)


def test_weights_with_another_digest_are_not_served(fleet: Fleet) -> None:
    """The sha256 of the Model is what its file must have, also one that lies here already."""

    async def play() -> None:
        await fleet.apply(model_object(sha256="b" * 64), service_object())
        async with fleet.serve() as services:
            await asyncio.to_thread(eventually, lambda: services.snapshot()[0]["reason"] == "HashMismatch")
            await fleet.settle()
            assert fleet.house.workers.started == []
            status = await fleet.status()
            assert (status["phase"], status["schedulingStatus"]) == ("Failed", "HashMismatch")

    scenario(play)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"extraArgs": ["--log-file", "/etc/x"]}, "ArgumentsRefused"),
        ({"cacheTypeK": "q9_9"}, "OptionRefused"),
        ({"modelRef": "nobody"}, "ModelNotFound"),
    ],
)
def test_what_is_refused_is_said_in_the_status(fleet: Fleet, spec: dict[str, Any], word: str) -> None:
    """Whoever applied it reads why, and so does the person at the host."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object(**spec))
        async with fleet.serve() as services:
            status = await fleet.status()
            assert (status["phase"], status["schedulingStatus"]) == ("Failed", word)
            (shown,) = services.snapshot()
            assert (shown["service"], shown["reason"]) == ("default/chat", word)
            assert shown["message"] == status["schedulingMessage"]

    scenario(play)


def test_fields_that_nobody_here_knows_are_named(fleet: Fleet) -> None:
    """Whoever set them reads in the status that they change nothing on this host."""

    async def play() -> None:
        spec: dict[str, Any] = {
            "moeCPUOffload": True,
            "image": "ghcr.io/x/y",
            "autoscaling": None,
            "noWarmup": True,
        }
        await fleet.apply(model_object(), service_object(**spec))
        async with fleet.serve():
            (condition,) = (await fleet.status())["conditions"]
            assert condition["message"].endswith("; not honoured here: image, moeCPUOffload")

    scenario(play)


def test_a_status_is_written_on_transitions_alone(fleet: Fleet) -> None:
    """An hour without news costs no write, and neither does an agent that starts."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object())
        async with fleet.serve():
            fleet.plane.calls.clear()
            await fleet.house.clock.run_for(3600)
            assert ("patch_status", "chat") not in fleet.plane.calls
        async with fleet.serve():
            await fleet.house.clock.run_for(60)
            assert ("patch_status", "chat") not in fleet.plane.calls

    scenario(play)


def test_a_write_that_lost_the_race_is_made_on_what_is_there_now(fleet: Fleet) -> None:
    """The object is read again, and what others have written meanwhile stays."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object())
        fleet.plane.fail("patch_status", ConflictError("modified", status=409, reason="Conflict"))
        async with fleet.serve():
            await fleet.house.clock.run_for(10)
            assert (await fleet.status())["phase"] == "Ready"

    scenario(play)


def test_a_status_that_may_not_be_written_stops_no_server(fleet: Fleet) -> None:
    """The service is served all the same, and the person at the host is told."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object())
        fleet.plane.fail("patch_status", *[UnauthorizedError("not yours", status=403)] * 9)
        async with fleet.serve() as services:
            assert [each.is_ready for each in services.served()] == [True]
            assert "not yours" in services.snapshot()[0]["message"]

    scenario(play)


def test_of_two_hosts_with_metal_one_serves(fleet: Fleet) -> None:
    """What another one says that it serves is left alone, and taken once people place it here."""

    async def play() -> None:
        condition = {
            "type": "journeyman.dev/Served", "status": "True", "reason": "Serving",
            "message": "node peer: it answers", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        fleet.has_metal = True
        await fleet.apply(model_object(hardware={"accelerator": "metal"}), service_object(node=None))
        await fleet.plane.patch(
            SERVICES.named("chat"), {"status": {"conditions": [condition]}}, subresource="status"
        )
        async with fleet.serve(fleet_service_allow=("default/*",)) as services:
            assert (fleet.running(), services.served()) == ([], [])
            assert (await fleet.status())["conditions"] == [condition]
            assert services.snapshot()[0]["reason"] == "ServedElsewhere"
            place = {"metadata": {"annotations": {PLACED_ON: "mine"}}}
            await fleet.plane.patch(SERVICES.named("chat"), place)
            await fleet.settle()
            assert fleet.running() == ["chat"]

    scenario(play)


def test_an_object_that_cannot_be_read_leaves_its_server_alone(fleet: Fleet) -> None:
    """A newer control plane may know words that we do not, and that is no order to stop."""

    async def play() -> None:
        await fleet.apply(model_object(), service_object())
        async with fleet.serve():
            await fleet.change(runtime="of-the-future")
            await fleet.settle()
            fleet.plane.forget_history()
            await fleet.house.clock.run_for(600)
            assert fleet.running() == ["chat"]
            assert fleet.house.workers.stopped == []

    scenario(play)


def test_what_an_agent_of_another_release_has_kept_is_read_as_far_as_it_goes(fleet: Fleet) -> None:
    """An option that we do not know does not cost the service; another format is no memory."""
    options = {"name": "chat", "model": SOURCE, "of_the_future": True}
    kept = {"namespace": "default", "name": "chat", "uid": "u", "port": 8080, "options": options}

    async def play() -> None:
        fleet.plane.down = UnreachableError("no answer")
        for number, listed, expected in ((1, [kept], ["chat"]), (2, [kept], []), (1, [{"name": "chat"}], [])):
            fleet.memory.save({"format": number, "services": listed})
            async with fleet.serve():
                assert fleet.running() == expected

    scenario(play)


@pytest.mark.parametrize(
    "change",
    [{"fleet_service_allow": ("default/other",)}, {"models": ("chat",)}],
    ids=["no longer allowed", "the settings serve that name"],
)
def test_what_the_settings_have_taken_back_is_not_served_from_memory(
    fleet: Fleet, change: dict[str, Any]
) -> None:
    """A host whose owner has become stricter does not wait for the control plane to say so."""

    async def play() -> None:
        fleet.house.store.stored["chat"] = model_file("chat", sha256="c" * 64)
        await fleet.apply(model_object(), service_object())
        async with fleet.serve():
            assert fleet.running() == ["chat"]
        fleet.plane.down = UnreachableError("no answer")
        async with fleet.serve(**change) as services:
            assert services.served() == []
            assert fleet.house.workers.started[0] in fleet.house.workers.stopped

    scenario(play)
