"""A plane in memory: the real store and the real reconcilers, one pass at a time, on a clock that we move."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from journeyman.errors import NotFoundError
from journeyman.model.agent_release import AgentRelease
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.fleet_node import FleetNode
from journeyman.model.meta import format_time
from journeyman.model.resources import AGENT_RELEASES, AGENTIC_TASKS, AGENTS, FLEET_NODES, VERSION, Resource
from journeyman_plane.adapters.crd_files import load_registry
from journeyman_plane.adapters.sqlite_store import SqliteStore
from journeyman_plane.core.actions import Chain
from journeyman_plane.core.admission import Admission
from journeyman_plane.core.world import RESOURCES
from journeyman_plane.loops.reconcile_loop import RECONCILERS, Follower, Reconciler, carry_out
from journeyman_plane.ports import JsonObject, Key
from tests.support.clock import FakeClock

SPLIT = {(resource.group, resource.plural) for resource in RESOURCES}
SHA256 = "a" * 64


@cache
def admission() -> Admission:
    """The schemas, read once."""
    return Admission(load_registry())


class PlaneInMemory:
    """Objects are written as agents and people write them; passes are made when the test says so.

    Args:
        path: where the store is kept; in memory by default.
    """

    def __init__(self, path: str = ":memory:") -> None:
        self.clock = FakeClock()
        self.store = SqliteStore(Path(path), self.clock, SPLIT)
        # It has been up for a while, so nodes may have been silent for a while.
        self.follower = Follower(self.store, self.now - timedelta(days=1))

    def restart(self) -> None:
        """The reconcilers of a plane that starts now, on what is in the store."""
        self.follower = Follower(self.store, self.now)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def decide(self, reconciler: Reconciler) -> list[Chain]:
        """What the reconciler wants now; nothing is written."""
        self.follower.catch_up()
        return reconciler(self.follower.world, self.now)

    def make_pass(self, reconcilers: Sequence[Reconciler] = RECONCILERS) -> int:
        """Lets each reconciler decide and carries it out; returns how many chains there were."""
        done = 0
        for reconciler in reconcilers:
            chains = self.decide(reconciler)
            self.carry_out(chains)
            done += len(chains)
        return done

    def carry_out(self, chains: Sequence[Chain]) -> list[bool]:
        """Carries out what was decided, maybe a while ago; says of each chain whether all of it was done.

        Whatever it writes must pass the schemas of the CustomResourceDefinitions, as the store does not ask.
        """
        done = [carry_out(chain, self.store) for chain in chains]
        for place in {action.key for chain in chains for action in chain.actions}:
            with suppress(NotFoundError):
                stored = self.store.get(place)
                resource = admission().registry.find(place.group, VERSION, place.plural)
                assert resource is not None
                admission().admit(resource, stored, strict=True)
        return done

    def settle(self) -> None:
        """Makes passes until nothing is left to do; a plane that never settles fails the test."""
        for _ in range(10):
            if self.make_pass() == 0:
                return
        raise AssertionError("the reconcilers still write after ten passes without any change")

    def add_node(
        self,
        name: str,
        *,
        beat_seconds_ago: float | None = 0,
        labels: dict[str, str] | None = None,
        roles: Sequence[str] = (),
        **status: Any,
    ) -> None:
        """A node whose agent has written Ready, or what `status` says, that long ago."""
        self._create(FLEET_NODES, name, {"nodeName": name, "roles": list(roles)}, labels=labels)
        fields = {"phase": "Ready", **status}
        if beat_seconds_ago is not None:
            fields["lastHeartbeatTime"] = format_time(self.now - timedelta(seconds=beat_seconds_ago))
        self.write_status(FLEET_NODES, name, fields)

    def add_task(
        self,
        name: str,
        *,
        agent: str = "",
        status: dict[str, Any] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """A task of the namespace `default`; without `status` it is as new as kubectl makes it."""
        body = {"kind": "freeform", **spec}
        if agent:
            body["agentRef"] = {"name": agent}
        self._create(AGENTIC_TASKS, name, body, annotations=annotations)
        if status:
            self.write_status(AGENTIC_TASKS, name, status)

    def add_persona(self, name: str, **spec: Any) -> None:
        self._create(AGENTS, name, {"role": "coder", "tools": ["bash"], **spec})

    def add_release(self, name: str = "release", **spec: Any) -> None:
        """An approved release of 2.0.0 for linux/arm64."""
        artifact = {"os": "linux", "arch": "arm64", "url": "https://plane/2.0.0.tar.gz", "sha256": SHA256}
        body = {"agentKind": "foreman-agent", "version": "2.0.0", "artifacts": [artifact], "approved": True}
        self._create(AGENT_RELEASES, name, {**body, **spec})

    def beat(self, name: str, **status: Any) -> None:
        """A heartbeat, as an agent writes it."""
        fields = {"phase": "Ready", "lastHeartbeatTime": format_time(self.now), **status}
        self.write_status(FLEET_NODES, name, fields)

    def write_status(self, resource: Resource, name: str, status: dict[str, Any]) -> None:
        self.store.patch(key(resource, name), {"status": status}, status=True)

    def write_spec(self, resource: Resource, name: str, spec: dict[str, Any]) -> None:
        self.store.patch(key(resource, name), {"spec": spec})

    def write_metadata(self, resource: Resource, name: str, metadata: dict[str, Any]) -> None:
        self.store.patch(key(resource, name), {"metadata": metadata})

    def delete(self, resource: Resource, name: str) -> None:
        self.store.delete(key(resource, name))

    def node(self, name: str) -> FleetNode:
        return FleetNode.from_wire(self._get(FLEET_NODES, name))

    def node_names(self) -> list[str]:
        return [
            item["metadata"]["name"] for item in self.store.select(FLEET_NODES.group, FLEET_NODES.plural)[0]
        ]

    def task(self, name: str) -> AgenticTask:
        return AgenticTask.from_wire(self._get(AGENTIC_TASKS, name))

    def tasks(self) -> list[AgenticTask]:
        found = self.store.select(AGENTIC_TASKS.group, AGENTIC_TASKS.plural)[0]
        return [AgenticTask.from_wire(item) for item in found]

    def release(self, name: str = "release") -> AgentRelease:
        return AgentRelease.from_wire(self._get(AGENT_RELEASES, name))

    def _get(self, resource: Resource, name: str) -> JsonObject:
        return self.store.get(key(resource, name))

    def _create(
        self,
        resource: Resource,
        name: str,
        spec: dict[str, Any],
        *,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> None:
        metadata: JsonObject = {"name": name}
        if labels:
            metadata["labels"] = labels
        if annotations:
            metadata["annotations"] = annotations
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
        self.store.create(key(resource, name), body)


def key(resource: Resource, name: str) -> Key:
    """Where an object of the namespace `default`, or of the cluster, is kept."""
    return Key(resource.group, resource.plural, "default" if resource.namespaced else "", name)
