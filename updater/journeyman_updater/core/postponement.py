"""What an update that the control plane asks for waits for: its hour, its turn, and the word of the gates."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from journeyman_updater.core.window import parse_window
from journeyman_updater.errors import PostponedError, Reason

# A fetch fills the disk and uses the link; heat, power and memory are no business of a transfer.
GATES_OF_A_FETCH = frozenset({"disk", "metered"})
_SPREAD_STEPS = 2**32


def check_window(spelled: str | None, now: datetime, to_local: Callable[[datetime], datetime]) -> None:
    """Refuses to start an update outside the maintenance window.

    Args:
        spelled: the window, or None for always.
        now: the wall clock, aware.
        to_local: the rules of the local time zone.

    Raises:
        PostponedError: OutsideWindow; also for a window that cannot be read, as nobody meant "always" by it.
    """
    if spelled is None:
        return
    try:
        window = parse_window(spelled)
    except ValueError as error:
        raise PostponedError(
            Reason.OUTSIDE_WINDOW,
            f"the window in state.json cannot be read: {error}",
            "Set it anew with `journeyman update window`.",
        ) from error
    if window.is_open(to_local(now)):
        return
    opening = window.next_opening(now, to_local)
    until = f"until {opening:%a %Y-%m-%d %H:%M}" if opening else "as it does not open within two weeks"
    raise PostponedError(
        Reason.OUTSIDE_WINDOW,
        f"the window {window.spelled} is closed {until}",
        "Wait, apply the file by hand, or change it with `journeyman update window`.",
    )


def check_gates(report: Mapping[str, Any] | None, now: datetime, *, longest_age_seconds: float) -> None:
    """Lets a closed gate that concerns a fetch delay it.

    The agent writes the report, and a broken agent must not keep its own repair away: a report that is
    missing, damaged, old, or from a time to come is no veto.

    Args:
        report: what `run/gates.json` holds, or None.
        now: the wall clock, aware.
        longest_age_seconds: older reports do not count.

    Raises:
        PostponedError: GateClosed.
    """
    if report is None:
        return
    try:
        age_seconds = (now - datetime.fromisoformat(report["writtenAt"])).total_seconds()
        closed = [
            gate for gate in report["gates"] if gate["name"] in GATES_OF_A_FETCH and gate["level"] != "open"
        ]
        names = {str(gate["name"]): [str(reason["code"]) for reason in gate["reasons"]] for gate in closed}
    except (KeyError, TypeError, ValueError):
        return
    if not names or not 0 <= age_seconds <= longest_age_seconds:
        return
    said = "; ".join(f"{name} ({', '.join(codes)})" if codes else name for name, codes in names.items())
    raise PostponedError(
        Reason.GATE_CLOSED,
        f"nothing is fetched while a gate is closed: {said}",
        "`journeyman gates` says what it waits for.",
    )


def turn_seconds(node_name: str, sha256: str, *, spread_seconds: float) -> float:
    """How long this node waits before it begins with a release: the same each time, and spread over a fleet.

    Args:
        node_name: of the FleetNode.
        sha256: of the release, so that not the same nodes come first each time.
        spread_seconds: the longest wait.
    """
    digest = hashlib.sha256(f"{node_name}\0{sha256}".encode()).digest()
    return spread_seconds * int.from_bytes(digest[:4], "big") / _SPREAD_STEPS
