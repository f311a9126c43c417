"""What the commands for people do on the control plane; composes a client from settings, and no more.

Which control plane: the one that the settings name; else the embedded one of this state root if it runs, as
its administrator; else the one that kubectl would speak to; else the error says how to name one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from journeyman import __version__
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.system_clock import SystemClock
from journeyman.errors import ConfigError, ExpiredError, NotFoundError
from journeyman.model.agent import AgentRole
from journeyman.model.agentic_task import AgenticTask, TaskKind
from journeyman.model.resources import AGENTIC_TASKS, AGENTS, FLEET_NODES
from journeyman.ports import Collection, ControlPlane, JsonObject
from journeyman.settings import Settings

ASSISTANT = "assistant"
NODES = Collection(FLEET_NODES.group, FLEET_NODES.version, FLEET_NODES.plural)


def tasks_of(namespace: str) -> Collection:
    """The tasks of a namespace."""
    return Collection(AGENTIC_TASKS.group, AGENTIC_TASKS.version, AGENTIC_TASKS.plural, namespace)


def personas_of(namespace: str) -> Collection:
    """The Agents, which are personas, of a namespace."""
    return Collection(AGENTS.group, AGENTS.version, AGENTS.plural, namespace)


@dataclass(frozen=True)
class EmbeddedPlane:
    """The files that an embedded plane keeps for its administrator."""

    folder: Path

    @property
    def address_file(self) -> Path:
        return self.folder / "address"

    @property
    def token_file(self) -> Path:
        return self.folder / "admin.token"

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.kubeconfig"

    @property
    def release_key(self) -> Path:
        return self.folder / "release.key"

    @property
    def release_public_key(self) -> Path:
        return self.folder / "release.pub"


def embedded_plane(settings: Settings) -> EmbeddedPlane:
    """The embedded plane of this state root, running or not."""
    return EmbeddedPlane(settings.state_root / "plane")


@asynccontextmanager
async def control_plane(settings: Settings) -> AsyncIterator[HttpControlPlane]:
    """A client for the commands of people.

    Raises:
        ConfigError: no control plane is named, and none is embedded here.
    """
    plane = HttpControlPlane(with_server(settings), SystemClock(), version=__version__)
    try:
        yield plane
    finally:
        await plane.aclose()


def with_server(settings: Settings) -> Settings:
    """The settings with a control plane: the embedded one where none is named.

    Raises:
        ConfigError: there is none.
    """
    if settings.server is not None or settings.kubeconfig is not None or settings.context is not None:
        return settings
    embedded = embedded_plane(settings)
    if not embedded.address_file.exists() and _has_usual_kubeconfig():
        return settings
    return plane_at(settings, embedded)


def _has_usual_kubeconfig() -> bool:
    """Whether kubectl would find a cluster by itself."""
    usual = Path(os.environ.get("HOME") or "/nonexistent") / ".kube" / "config"
    return bool(os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST")) or usual.exists()


def plane_at(settings: Settings, embedded: EmbeddedPlane) -> Settings:
    """The settings of a client that is the administrator of a plane on this machine.

    Raises:
        ConfigError: no plane runs there.
    """
    try:
        address = embedded.address_file.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"no control plane is named, and none runs in {embedded.folder}",
            "start one with `journeyman up`, or name one with --server and --token-file",
        ) from error
    found: dict[str, Any] = {"server": address, "token_file": embedded.token_file}
    if address.startswith("https:"):
        found["ca_file"] = embedded.ca_file
    return settings.model_copy(update=found)


@dataclass(frozen=True)
class Submission:
    """A freeform task to submit.

    Attributes:
        prompt: what is asked.
        name: the task's name, or an empty string for a generated one.
        persona: the name of an Agent, or an empty string.
        timeout_seconds: after this the task ends INCOMPLETE; 0 is no limit.
        depends_on: names of tasks that must be on target first.
        node_selector: labels that the node must carry.
    """

    prompt: str
    name: str = ""
    persona: str = ""
    timeout_seconds: int = 0
    depends_on: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()

    def to_wire(self, namespace: str) -> dict[str, Any]:
        """The AgenticTask to create."""
        spec: dict[str, Any] = {
            "kind": TaskKind.FREEFORM.value,
            "payload": {"prompt": self.prompt},
            "timeoutSeconds": self.timeout_seconds,
        }
        if self.persona:
            spec["agentRef"] = {"name": self.persona}
        if self.depends_on:
            spec["dependsOn"] = list(self.depends_on)
        if self.node_selector:
            spec["requiredCapability"] = {"nodeSelector": dict(self.node_selector)}
        return {
            "apiVersion": AGENTIC_TASKS.api_version,
            "kind": AGENTIC_TASKS.kind,
            "metadata": {
                "name": self.name or f"task-{secrets.token_hex(4)}",
                "namespace": namespace,
            },
            "spec": spec,
        }


async def submit(plane: ControlPlane, submission: Submission, namespace: str) -> JsonObject:
    """Creates the task and returns it as stored."""
    return await plane.create(tasks_of(namespace), submission.to_wire(namespace))


async def ensure_assistant(plane: ControlPlane, namespace: str, model: str) -> str:
    """Makes the Agent that plain questions run as, unless there is one, and returns its name.

    It is short and repeatable: a small model wanders off when it is neither.
    """
    spec = {
        "role": AgentRole.PLANNER.value,
        "model": model,
        "systemPrompt": "You are a helpful assistant. Answer in one or two short sentences.",
        "temperature": "0",
        "maxOutputTokens": 256,
        "tools": ["submit_result"],
        "requiredCapability": {"requiresModelInstalled": True},
    }
    body = {
        "apiVersion": AGENTS.api_version,
        "kind": AGENTS.kind,
        "metadata": {"name": ASSISTANT, "namespace": namespace},
        "spec": spec,
    }
    ref = personas_of(namespace).named(ASSISTANT)
    try:
        found = await plane.get(ref)
    except NotFoundError:
        await plane.create(personas_of(namespace), body)
    else:
        if found["spec"].get("model") != model:
            await plane.patch(ref, {"spec": {"model": model}})
    return ASSISTANT


async def changes(plane: ControlPlane, collection: Collection) -> AsyncIterator[tuple[str, JsonObject]]:
    """Every object of a collection now, and then each change, as (type, object), for ever.

    A stream that ends is opened again where it stopped; one whose start is too old begins anew.  An
    error of the API ends it: a person is looking, and shall see it.
    """
    while True:
        listed = await plane.list(collection)
        for item in listed.items:
            yield "ADDED", item
        version = listed.resource_version
        try:
            while True:
                async for event in plane.watch(collection, resource_version=version):
                    version = event.object["metadata"]["resourceVersion"]
                    if event.type != "BOOKMARK":
                        yield event.type, event.object
        except ExpiredError:
            continue


async def until_terminal(plane: ControlPlane, namespace: str, name: str) -> AsyncIterator[AgenticTask]:
    """The task now and at each change, until nothing more will happen to it.

    Raises:
        NotFoundError: it does not exist, or was deleted meanwhile.
    """
    await plane.get(tasks_of(namespace).named(name))
    async for kind, item in changes(plane, tasks_of(namespace)):
        if item["metadata"]["name"] != name:
            continue
        if kind == "DELETED":
            raise NotFoundError(f"task {name} was deleted", "nothing more will happen to it")
        task = AgenticTask.from_wire(item)
        yield task
        if task.is_terminal:
            return


def age(since: datetime | None, now: datetime) -> str:
    """How long ago that was, for a table: `12s`, `5m`, `3h`, `9d`; a hyphen for never."""
    if since is None:
        return "-"
    seconds = max(int((now - since).total_seconds()), 0)
    for size, letter in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{letter}"
    return f"{seconds}s"
