"""What others have given our FleetNode, so that a node that has to be POSTed again gets it back.

A node is deleted when it was silent and Draining for ten minutes, or by hand; labels that somebody selects
by, roles that an administrator added, and a cordon from afar are not ours to lose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from journeyman.core.beat import Identity
from journeyman.core.remote_verbs import VERBS
from journeyman.model.fleet_node import LABEL_UPDATABLE, FleetNode


@dataclass(frozen=True)
class NodeMemory:
    """What was there at the last heartbeat that the control plane took.

    Attributes:
        labels: those that are not ours.
        annotations: the verbs of people far away.
        roles: those that are not ours.
        own_roles: ours at that time; one that is taken out of the settings is no foreign one.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    own_roles: tuple[str, ...] = ()

    @classmethod
    def of(cls, identity: Identity, node: FleetNode) -> NodeMemory:
        """What a heartbeat's reply tells."""
        ours = {*identity.labels, LABEL_UPDATABLE}
        return cls(
            labels={key: value for key, value in node.metadata.labels.items() if key not in ours},
            annotations={key: value for key, value in node.metadata.annotations.items() if key in VERBS},
            roles=tuple(role for role in node.spec.roles if role not in identity.roles),
            own_roles=identity.roles,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> NodeMemory:
        """Reads what `to_json` wrote; an older release wrote labels alone."""
        found = value or {}
        return cls(
            labels=dict(found.get("labels", {})),
            annotations=dict(found.get("annotations", {})),
            roles=tuple(found.get("roles", ())),
            own_roles=tuple(found.get("ownRoles", ())),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "roles": list(self.roles),
            "ownRoles": list(self.own_roles),
        }

    def roles_beside(self, identity: Identity, present: Sequence[str]) -> tuple[str, ...]:
        """The roles of a node that exists: ours, and those that others gave it.

        Args:
            identity: with our roles.
            present: those that the node has.
        """
        ours = {*identity.roles, *self.own_roles}
        return (*identity.roles, *(role for role in present if role not in ours))
