"""What a node does about tasks, in one process: the product's own composition, with workers in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from journeyman.adapters.durable_json import JsonSpool
from journeyman.core.worker_specs import Interpreter
from journeyman.node_tasks import Means, NodeTasks
from journeyman.ports import Clock, ControlPlane, Endpoint, Workers
from journeyman.settings import Settings


class OneModel:
    """A model that always answers."""

    def chat_models(self) -> Sequence[str]:
        return ["m"]

    def endpoint_for(self, model: str) -> Endpoint | None:
        return Endpoint("http://127.0.0.1:1/v1", b"key")

    def start_seconds(self, model: str) -> float:
        return 600.0

    def wake(self, model: str) -> bool:
        return False


def node_tasks(
    plane: ControlPlane,
    workers: Workers,
    clock: Clock,
    settings: Settings,
    *,
    held: Callable[[], bool] = lambda: False,
    node_name: str = "me",
) -> NodeTasks:
    """The tasks of a node on the plug that serves one model."""
    return NodeTasks(
        plane=plane,
        clock=clock,
        settings=settings,
        node_name=node_name,
        means=Means(workers, OneModel(), Interpreter("python"), JsonSpool(settings.root.outbox)),
        held=held,
        saves_power=lambda: False,
        changed=lambda: None,
    )
