"""What a reconciler may ask for: writes to single objects, in chains.

Nothing is done here.  The loop carries the actions out, and an action is only ever carried out on the
version of the object that the decision was made upon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from journeyman.model.meta import ObjectMeta
from journeyman.model.resources import Resource
from journeyman_plane.ports import Key


@dataclass(frozen=True)
class PatchStatus:
    """A merge patch of an object's status; `None` removes a field."""

    key: Key
    status: Mapping[str, Any]
    resource_version: str


@dataclass(frozen=True)
class PatchAnnotations:
    """A merge patch of an object's annotations; `None` removes one."""

    key: Key
    annotations: Mapping[str, str | None]
    resource_version: str


@dataclass(frozen=True)
class Delete:
    """The deletion of that very object in that very version, not of a namesake or a revived one."""

    key: Key
    uid: str
    resource_version: str


Action = PatchStatus | PatchAnnotations | Delete


@dataclass(frozen=True)
class Chain:
    """Actions in order, each taken only if all before it succeeded.

    There is no roll-back: the first action must be harmless on its own, and a reconciler must mend what a
    broken chain leaves.  An action on an object that an earlier action of the chain wrote goes on from
    the version which that one produced.

    Args:
        decision: why, as one constant snake_case word for the log.
        actions: what to do.
    """

    decision: str
    actions: tuple[Action, ...]


def key_of(resource: Resource, metadata: ObjectMeta) -> Key:
    """Where the store keeps the object with that metadata."""
    return Key(resource.group, resource.plural, metadata.namespace, metadata.name)
