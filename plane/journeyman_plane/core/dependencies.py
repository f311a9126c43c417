"""Whether a task may start, going by the tasks that it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from journeyman.model.agentic_task import AgenticTask, TaskVerdict
from journeyman_plane.core.world import World


class Outlook(Enum):
    """What a task's dependencies mean for it."""

    CLEAR = auto()
    WAITING = auto()
    MOOT = auto()
    DOOMED = auto()


@dataclass(frozen=True)
class Judgement:
    """The outlook, and the dependency that decided it; empty where all is clear."""

    outlook: Outlook
    dependency: str = ""


def judge_dependencies(task: AgenticTask, world: World) -> Judgement:
    """Returns the outlook of a task.

    A dependency whose work was done already makes the task moot, and so does one that was itself skipped
    for that reason: Foreman fails the second link of such a chain, which blames nobody's fault on
    somebody.  One that failed, or succeeded without GO or GATE-PASS, dooms it.  One that is missing is
    waited for, as it may be created later.
    """
    found = [
        (_outlook_of(world.tasks.get(f"{task.metadata.namespace}/{name}")), name)
        for name in task.spec.depends_on
    ]
    for outlook in (Outlook.MOOT, Outlook.DOOMED, Outlook.WAITING):
        for seen, name in found:
            if seen is outlook:
                return Judgement(outlook, name)
    return Judgement(Outlook.CLEAR)


def _outlook_of(dependency: AgenticTask | None) -> Outlook:
    if dependency is None or not dependency.is_terminal:
        return Outlook.WAITING
    if dependency.already_resolved or dependency.status.verdict is TaskVerdict.SKIPPED:
        return Outlook.MOOT
    return Outlook.CLEAR if dependency.on_target else Outlook.DOOMED
