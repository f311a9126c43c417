"""What the agent says of itself to the people of its host, over the control socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from journeyman.core.holds import Holds
from journeyman.core.task_plan import Claim
from journeyman.model.fleet_node import FleetNodePhase
from journeyman.model.meta import format_time
from journeyman.ports import DeadLetter
from journeyman_updater.contract import WorkerRecord


@dataclass(frozen=True)
class AgentStatus:
    """One moment of the agent.

    Attributes:
        node_name: of our FleetNode.
        version: ours.
        pid: ours.
        started_at: since when we run.
        server: URL of the control plane, or None.
        holds: who keeps work away.
        last_beat_at: when the control plane last took a heartbeat, or None.
        last_beat_error: why it did not take the last one, or an empty string.
        runs: the claimed tasks and their workers.
        undelivered: how many endings are on their way.
        dead_letters: endings that will never be delivered, for a person to look at.
        models: the model servers, as they show themselves.
        services: the services of the control plane that are this host's, as they show themselves.
        proxy: the one endpoint of all models, as it shows itself; empty where there is none.
        registrations: what the cluster was told of the services that are reachable here.
        credential_error: why our credential could not be renewed, or an empty string.
    """

    node_name: str
    version: str
    pid: int
    started_at: datetime
    server: str | None
    holds: Holds
    last_beat_at: datetime | None
    last_beat_error: str
    runs: Sequence[tuple[Claim, WorkerRecord]]
    undelivered: int
    dead_letters: Sequence[DeadLetter]
    models: Sequence[dict[str, Any]]
    services: Sequence[dict[str, Any]]
    proxy: dict[str, Any]
    registrations: Sequence[dict[str, Any]]
    credential_error: str

    def to_json(self) -> dict[str, Any]:
        phase = FleetNodePhase.DRAINING if self.holds else FleetNodePhase.READY
        return {
            "nodeName": self.node_name,
            "version": self.version,
            "pid": self.pid,
            "startedAt": format_time(self.started_at),
            "server": self.server,
            "phase": phase.value,
            "lastHeartbeatAt": _time(self.last_beat_at),
            "lastHeartbeatError": self.last_beat_error,
            "credentialError": self.credential_error,
            "undelivered": self.undelivered,
            "holds": [
                {"owner": hold.owner.value, "reason": hold.reason, "until": _time(hold.until)}
                for hold in self.holds.held
            ],
            "tasks": [
                {
                    "namespace": claim.namespace,
                    "name": claim.name,
                    "claimedAt": format_time(claim.claimed_at),
                    "worker": record.worker_id,
                    "pid": record.worker.pid,
                }
                for claim, record in self.runs
            ],
            "models": list(self.models),
            "services": list(self.services),
            "proxy": self.proxy,
            "registrations": list(self.registrations),
            "deadLetters": [
                {"task": _task_of(letter), "why": letter.why, "file": letter.place}
                for letter in self.dead_letters
            ],
        }


def _task_of(letter: DeadLetter) -> str:
    """`namespace/name`, or the name of the entry if nobody can tell."""
    match letter.value:
        case {"claim": {"namespace": str(namespace), "name": str(name)}}:
            return f"{namespace}/{name}"
    return letter.entry_id


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)
