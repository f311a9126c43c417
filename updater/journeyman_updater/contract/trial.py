"""The trial handshake: what a running agent says of itself, for the guard and the updater to judge.

The guard hands a release two environment variables, NONCE and SHA.  The agent writes `run/trial.json` when
it is READY, again at each heartbeat, and a last time when it stops cleanly.  The format is frozen: a fleet
may hold an old updater and a new agent for months.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

FORMAT_VERSION = 1
NONCE_VARIABLE = "JOURNEYMAN_RELEASE_NONCE"
SHA_VARIABLE = "JOURNEYMAN_RELEASE_SHA"


@dataclass(frozen=True)
class TrialReport:
    """One agent's word about itself.  It is written by the agent's user and therefore never trusted alone.

    Attributes:
        nonce: what the guard handed over in NONCE_VARIABLE.
        pid: its process id.
        start: its raw start time as `contract.process.start_time` reads it.
        sha: what the guard handed over in SHA_VARIABLE.
        loops_ticking: whether each of its loops has ticked within its own deadline.
        beats_attempted: heartbeats tried since the start.
        beats_accepted: heartbeats that the control plane took since the start.
        beat_error: why the last heartbeat failed (`ClockWrong`, `Unreachable`, ...), or an empty string.
        busy: how many pieces of work run that another agent could not adopt.
        stopped: written last, when the agent was asked to stop and has done so in good order.
    """

    nonce: str
    pid: int
    start: str
    sha: str
    loops_ticking: bool = True
    beats_attempted: int = 0
    beats_accepted: int = 0
    beat_error: str = ""
    busy: int = 0
    stopped: bool = False

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> TrialReport:
        """Reads what `to_json` wrote; unknown fields are ignored, absent later ones have their default.

        Raises:
            ValueError: it is not a report.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
            raise ValueError(f"not a trial report in format {FORMAT_VERSION}")
        fields: dict[str, Any] = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        try:
            report = cls(**fields)
        except TypeError as error:
            raise ValueError(f"not a trial report: {error}") from error
        for name, kind in _KINDS.items():
            # Not isinstance: a truth value is an int, too.
            if type(getattr(report, name)) is not kind:
                raise ValueError(f"not a trial report: {name} is no {kind.__name__}")
        return report


_KINDS = {name: type(getattr(TrialReport("", 0, "", ""), name)) for name in TrialReport.__dataclass_fields__}
