"""What becomes of a task whose worker an agent finds when it starts; the table of design.md §3.

    task kind                worker alive   gone, exit known      gone, exit unknown
    freeform, review         adopt          deliver or run again  hand back
    lane job                 adopt          receipt               receipt `uncertain`, never run again

Freeform work has no effect outside its folder, so running it again is safe; how often it may be tried
is bounded all the same, as a prompt that kills the worker would kill the next one too.
"""

from __future__ import annotations

from enum import StrEnum

MAX_ATTEMPTS = 2


class Recovery(StrEnum):
    """What to do with a worker."""

    ADOPT = "adopt"
    DELIVER = "deliver"
    RUN_AGAIN = "run-again"
    HAND_BACK = "hand-back"
    FAIL = "fail"


def recover(*, alive: bool, exit_known: bool, has_result: bool, attempt: int) -> Recovery:
    """Decides about the worker of a freeform task, at an agent's start and whenever a worker ends.

    Args:
        alive: whether the worker still runs.
        exit_known: whether its shim reported how it ended.
        has_result: whether it left a complete result; results are written durably, so there is no half.
        attempt: which try of this claim it was, from 1.
    """
    if alive:
        return Recovery.ADOPT
    if has_result:
        return Recovery.DELIVER
    if not exit_known:
        return Recovery.HAND_BACK
    return Recovery.RUN_AGAIN if attempt < MAX_ATTEMPTS else Recovery.FAIL
