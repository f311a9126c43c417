"""Follows what people far away ask of this node, heartbeat by heartbeat; `core/remote_verbs.py` reads it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import structlog

from journeyman.core.gates.conditions import Told
from journeyman.core.holds import Hold, Owner
from journeyman.core.remote_verbs import DRAINED, UNDERSTOOD, Asked, asked_of, told_of
from journeyman.errors import HostError
from journeyman.model.fleet_node import FleetNode, FleetNodePhase

log = structlog.get_logger(__name__)


class Holder(Protocol):
    """Where holds are kept."""

    def follow(self, owner: Owner, wanted: Hold | None) -> None:
        """Makes that owner's hold the wanted one.  Raises HostError."""
        ...


class RemoteVerbs:
    """The annotations of our FleetNode, as the last heartbeat's reply had them.

    Args:
        holds: where the hold goes.
        running: how much runs here now.
    """

    def __init__(self, holds: Holder, running: Callable[[], int]) -> None:
        self._holds = holds
        self._running = running
        self._asked = Asked()
        self._carried: frozenset[str] = frozenset()
        self._draining = False

    def heard(self, node: FleetNode, now: datetime) -> None:
        """Takes in the reply of a heartbeat.

        Args:
            node: our FleetNode.
            now: by the server's clock.
        """
        asked = asked_of(node.metadata.annotations, now)
        for mistake in set(asked.mistakes) - set(self._asked.mistakes):
            log.warning("annotation_not_understood", mistake=mistake)
        self._asked = asked
        self._draining = node.status.phase is FleetNodePhase.DRAINING
        self._carried = frozenset({one.type for one in node.status.conditions} & {DRAINED, UNDERSTOOD})
        try:
            self._holds.follow(Owner.REMOTE, asked.hold)
        except HostError as error:
            log.warning("remote_hold_not_kept", error=str(error))

    def told(self) -> tuple[Told, ...]:
        """The conditions that answer whoever asked."""
        return told_of(self._asked, self._carried, draining=self._draining, running=self._running())
