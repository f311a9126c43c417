"""The name of a node: readable, valid, and its own even on a cloned disk.

A name is made once, from the host name and a random id, and kept: a Mac's host name changes with the
network it is in, its FleetNode must not.  It is made anew only where the facts that were recorded with it
belong to another machine, which is how a copied state root shows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from journeyman.errors import ConfigError

FORMAT_VERSION = 1
LONGEST_NAME = 63  # A DNS label, RFC 1123.
SUFFIX_DIGITS = 6
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class IdentityChange(Enum):
    """What became of the recorded identity."""

    KEPT = auto()
    FIRST = auto()
    """There was none."""
    CLONED = auto()
    """It was another machine's: this state root is a copy."""


@dataclass(frozen=True)
class NodeIdentity:
    """Who this installation is, from its first start on.

    Attributes:
        instance: a random id, by which two machines under one name are told apart.
        node_name: the generated name.
        machine_facts: hashes of what identifies the machine, by the name of the fact.
    """

    instance: str
    node_name: str
    machine_facts: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "instance": self.instance,
            "nodeName": self.node_name,
            "machineFacts": dict(self.machine_facts),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NodeIdentity | None:
        """Reads what `to_json` wrote; None if it is something else."""
        match value:
            case {
                "format": 1,
                "instance": str(instance),
                "nodeName": str(name),
                "machineFacts": dict(facts),
            } if instance and NAME.fullmatch(name):
                return cls(
                    instance, name, {key: fact for key, fact in facts.items() if isinstance(fact, str)}
                )
            case _:
                return None


def identify(
    recorded: NodeIdentity | None, hostname: str, machine_facts: Mapping[str, str], fresh_instance: str
) -> tuple[NodeIdentity, IdentityChange]:
    """Decides who this installation is.

    Args:
        recorded: what the state root says, if anything.
        hostname: of this machine, unchecked.
        machine_facts: raw values that identify the machine, by name; those that cannot be read are left out.
        fresh_instance: a random id to use if a new identity is needed.

    Returns:
        The identity to record. A fact that only one side knows proves nothing; new facts are added.
    """
    # Only hashes are kept: machine-id(5) asks that the id itself is not passed on.
    hashed = {name: hashlib.sha256(value.encode()).hexdigest() for name, value in machine_facts.items()}
    if recorded is not None:
        both = recorded.machine_facts.keys() & hashed.keys()
        if all(recorded.machine_facts[name] == hashed[name] for name in both):
            facts = {**recorded.machine_facts, **hashed}
            return NodeIdentity(recorded.instance, recorded.node_name, facts), IdentityChange.KEPT
    change = IdentityChange.FIRST if recorded is None else IdentityChange.CLONED
    return NodeIdentity(fresh_instance, generated_name(hostname, fresh_instance), hashed), change


def generated_name(hostname: str, instance: str) -> str:
    """`<hostname>-<6 hex digits>`, the digits from the instance id."""
    suffix = hashlib.sha256(instance.encode()).hexdigest()[:SUFFIX_DIGITS]
    return f"{sanitised(hostname, LONGEST_NAME - SUFFIX_DIGITS - 1)}-{suffix}"


def sanitised(hostname: str, longest: int = LONGEST_NAME) -> str:
    """The part of a host name that may be part of a node name; `fleetnode` if nothing is left.

    The rule of LLMKube's foreman-agent: lower case, other characters become hyphens, trimmed.
    """
    name = re.sub(r"[^a-z0-9-]+", "-", hostname.lower()).strip("-")
    return name[:longest].strip("-") or "fleetnode"


def checked_name(name: str) -> str:
    """Returns a name that a person chose, as it is.

    Raises:
        ConfigError: the API server would refuse it.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"the node name {name!r} is not valid",
            "Use 1 to 63 lower-case letters, digits and hyphens, with no hyphen at an end.",
        )
    return name
