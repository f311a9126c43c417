"""Carries out what `core/gates/ladder.py` decides about running work, after each sweep of the sensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from journeyman.core.gates.ladder import Action, Do, Job, Step, next_actions
from journeyman.core.gates.marks import LadderMarks
from journeyman.core.gates.reclaim import DISK_GATE
from journeyman.core.gates.verdict import Verdict

log = structlog.get_logger(__name__)

STEPS = {
    Do.SUSPEND: Step.SUSPENDED,
    Do.RESUME: Step.RUNNING,
    Do.TERMINATE: Step.TERMINATING,
    Do.KILL: Step.KILLED,
}


class RunsWork(Protocol):
    """Whoever has work running on this host."""

    def work(self) -> Sequence[Job]:
        """What runs now, with what it uses."""
        ...

    def carry_out(self, action: Action) -> None:
        """Takes one step with one piece of it, if it still runs.  Returns at once."""
        ...


class Ladder:
    """Remembers which step each piece of work stands on.

    Args:
        runners: those who have work running.
        verdict: what the gates ask for now.
        boot_now: the boot-time clock, seconds.
        marks: bounds of the steps.
        phone: whether the shorter grace of phones applies.
        promised: takes what the disk should get back when work ends for its gate, in bytes.
    """

    def __init__(
        self,
        *,
        runners: Sequence[RunsWork],
        verdict: Callable[[], Verdict],
        boot_now: Callable[[], float],
        marks: LadderMarks,
        phone: bool,
        promised: Callable[[float], None],
    ) -> None:
        self._runners = runners
        self._verdict = verdict
        self._boot_now = boot_now
        self._marks = marks
        self._phone = phone
        self._promised = promised
        self._steps: dict[str, tuple[Step, float]] = {}
        self._last_step_at = -math.inf

    def act(self) -> None:
        """Takes the steps that are due."""
        now = self._boot_now()
        owners = {job.job_id: (runner, job) for runner in self._runners for job in runner.work()}
        self._steps = {job_id: at for job_id, at in self._steps.items() if job_id in owners}
        jobs = [self._placed(job) for _, job in owners.values()]
        actions = next_actions(
            jobs, self._verdict(), now, self._marks, phone=self._phone, last_step_at=self._last_step_at
        )
        for action in actions:
            log.warning(
                "work_interrupted",
                job=action.job_id,
                do=action.do.value,
                gate=action.gate,
                reason=action.reason,
            )
            self._steps[action.job_id] = (STEPS[action.do], now)
            if action.do is not Do.RESUME:
                self._last_step_at = now
            runner, job = owners[action.job_id]
            if action.gate == DISK_GATE and job.disk_bytes:
                self._promised(job.disk_bytes)
            runner.carry_out(action)

    def _placed(self, job: Job) -> Job:
        step, since = self._steps.get(job.job_id, (Step.RUNNING, 0.0))
        return replace(job, step=step, step_since=since)
