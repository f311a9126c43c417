"""How an update goes: `update.json`, and the condition `Updating` that it becomes.

The updater writes the file and the agent tells the control plane; the updater tells it by itself only while
the agent is silent.  Both take their words from here, so that they never contradict each other.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

FORMAT_VERSION = 1
CONDITION = "Updating"
SILENT_AFTER_SECONDS = 300.0
"""An agent whose last accepted heartbeat is older than this does not speak for its host any more."""

_PERCENT_STEP = 10
_BYTES_STEP = 10 * 1000**2
_LONGEST_MESSAGE = 1000
# For each step: whether the update is under way, the reason where no better one is known, and the words.
_STEPS = {
    "fetch": (True, "Fetching", "is fetched"),
    "stage": (True, "Staging", "is unpacked and checked"),
    "drain": (True, "Draining", "waits for work to end"),
    "activate": (True, "Trying", "runs on trial"),
    "inconclusive": (True, "Trying", "runs on trial"),
    "commit": (True, "Committing", "is made permanent"),
    "rollback": (True, "RollingBack", "is undone"),
    "committed": (False, "Updated", "runs"),
    "rolled_back": (False, "RolledBack", "was undone"),
    "refused": (False, "Refused", "was refused"),
    "later": (False, "Postponed", "waits"),
}


@dataclass(frozen=True)
class UpdateProgress:
    """Where an update stands.  Volatile: a boot may end it.

    Attributes:
        step: a step of the journal, or `later`.
        version: of the release, as the request spelled it.
        sha256: of its artifact.
        attempt: the start of the trial that is under way, or how many there were; 0 before the first.
        bytes_here: how much of the artifact is here.
        bytes_total: how large it is, or 0 if nobody said.
        reason: a reason code, or an empty string.
        message: one line for people, or an empty string.
    """

    step: str
    version: str
    sha256: str
    attempt: int = 0
    bytes_here: int = 0
    bytes_total: int = 0
    reason: str = ""
    message: str = ""

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> UpdateProgress:
        """Reads what `to_json` wrote; unknown fields of a newer writer are ignored.

        Raises:
            ValueError: it is not such a file.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
            raise ValueError(f"not an update's progress in format {FORMAT_VERSION}")
        kinds = {name: type(getattr(cls("", "", ""), name)) for name in cls.__dataclass_fields__}
        found = {name: value[name] for name in kinds if name in value}
        if not {"step", "version", "sha256"} <= set(found) or any(
            not isinstance(item, kinds[name]) for name, item in found.items()
        ):
            raise ValueError("not an update's progress: a field is missing or of another kind")
        reason = str(found.get("reason", ""))
        if reason and not (reason.isascii() and reason.isalpha()):
            raise ValueError("not an update's progress: its reason is no reason code")
        return cls(**found)

    def condition(self) -> tuple[bool, str, str] | None:
        """Whether it is under way, the reason and the message; None for a step that nobody is told of.

        They change with each step and each tenth of the transfer, and with nothing else.
        """
        known = _STEPS.get(self.step)
        if known is None:
            return None
        is_under_way, reason, words = known
        return is_under_way, self.reason or reason, self._sentence(words)

    def _sentence(self, words: str) -> str:
        parts = [f"{self.version} {words}"]
        if self.step == "fetch" and self.bytes_total:
            tenth = 100 * self.bytes_here // self.bytes_total // _PERCENT_STEP * _PERCENT_STEP
            parts.append(f"{tenth} % of {self.bytes_total} bytes")
        elif self.step == "fetch" and self.bytes_here >= _BYTES_STEP:
            parts.append(f"{self.bytes_here // _BYTES_STEP * _BYTES_STEP} bytes so far")
        if self.attempt:
            parts.append(f"attempt {self.attempt}")
        said = ", ".join(parts)
        return f"{said}: {self.message[:_LONGEST_MESSAGE]}" if self.message else said
