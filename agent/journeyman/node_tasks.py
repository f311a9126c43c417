"""Composes what this node does about tasks: knows them, takes them, runs them, delivers what came out.

The four parts tell each other what they have seen, so that a look at the tasks never costs a request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from journeyman.core.worker_specs import Interpreter
from journeyman.errors import JourneymanError
from journeyman.loops.outbox_loop import OutboxLoop
from journeyman.loops.task_feed import TaskFeed
from journeyman.loops.task_loop import TaskLoop
from journeyman.loops.task_runner import Models, TaskRunner
from journeyman.model.fleet_node import FleetNode
from journeyman.ports import Clock, ControlPlane, JsonObject, Spool, Workers
from journeyman.settings import Settings


@dataclass(frozen=True)
class Means:
    """What tasks run with on this host.

    Attributes:
        workers: the processes.
        models: the model servers.
        interpreter: the Python that runs workers.
        spool: where endings are kept.
    """

    workers: Workers
    models: Models
    interpreter: Interpreter
    spool: Spool


class NodeTasks:
    """The tasks of one node.

    Args:
        plane: the control plane.
        clock: time.
        settings: namespaces, slots, pauses and deadlines.
        node_name: who we are.
        means: what tasks run with on this host.
        held: whether the node takes no new work at this moment.
        saves_power: whether the host is on battery.
        changed: called when a run has begun or ended.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: Settings,
        node_name: str,
        means: Means,
        held: Callable[[], bool],
        saves_power: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._changed = changed
        self.outbox = OutboxLoop(
            plane=plane,
            clock=clock,
            spool=means.spool,
            settings=settings,
            node_name=node_name,
            seen=self._seen,
        )
        self.runner = TaskRunner(
            plane=plane,
            workers=means.workers,
            models=means.models,
            clock=clock,
            settings=settings,
            interpreter=means.interpreter,
            deliver=self.outbox.put,
            changed=self._runs_changed,
        )
        self.feeds = [
            TaskFeed(
                plane=plane,
                clock=clock,
                settings=settings,
                namespace=namespace,
                node_name=node_name,
                runs_here=partial(self._runs_here, namespace),
                changed=self.look_soon,
                saves_power=saves_power,
            )
            for namespace in settings.namespaces_of_tasks
        ]
        self.loop = TaskLoop(
            plane=plane,
            clock=clock,
            settings=settings,
            node_name=node_name,
            feeds=self.feeds,
            runner=self.runner,
            undelivered=self.outbox.claims,
            held=held,
            saves_power=saves_power,
        )

    def take_up(self) -> None:
        """Takes up what an agent before this one has left: results on their way, and running workers."""
        self.outbox.load()
        self.runner.adopt()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """What runs for as long as the agent does."""
        return [self.loop.run(), self.outbox.run(), *(feed.run() for feed in self.feeds)]

    def look_soon(self) -> None:
        """Asks for a look now, as something that decides about tasks has changed."""
        self.loop.look_soon()

    def doubt(self) -> None:
        """What is known of the tasks may be old, as after a sleep of the host: all of it is listed anew."""
        for feed in self.feeds:
            feed.doubt()

    def _runs_changed(self) -> None:
        self.look_soon()
        self._changed()

    def beat_accepted(self, node: FleetNode) -> None:
        """The control plane has taken a heartbeat and told how it sees this node."""
        for feed in self.feeds:
            feed.heard(node.status.current_task)

    async def look_afresh(self) -> None:
        """One last look, on new lists where these can be had; what cannot be done is left undone."""
        for feed in self.feeds:
            with suppress(JourneymanError):
                await feed.refresh()
        with suppress(JourneymanError):
            await self.loop.look()

    def _runs_here(self, namespace: str, name: str) -> bool:
        return any(claim.key == (namespace, name) for claim in self.runner.claims())

    def _seen(self, item: JsonObject) -> None:
        namespace = item.get("metadata", {}).get("namespace")
        for feed in self.feeds:
            if feed.namespace == namespace:
                feed.note(item)
