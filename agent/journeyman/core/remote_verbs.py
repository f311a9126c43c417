"""What people far away ask of this node: annotations on its FleetNode, each with an end and a reason.

    journeyman.dev/cordon: 2026-12-01T18:00:00Z the disk is being replaced
    journeyman.dev/drain:  2026-12-01T18:00:00Z the disk is being replaced
    journeyman.dev/allow:  2026-12-01T18:00:00Z <sha256> the disk was at fault

The first two keep new work away until then, or until the annotation is taken off; a drain also tells, by the
condition `Drained`, when nothing runs any more.  The third lets a release be tried again that was rejected
here: the updater obeys it, and the agent says what is wrong with it.  There is no verb that names a URL or a
version, so whoever may annotate a node can stop it, and can make it run nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from journeyman.core.gates.conditions import Told
from journeyman.core.holds import Hold, Owner
from journeyman.model.meta import ConditionStatus, parse_time
from journeyman_updater.contract.allow import ALLOW, LONGEST, parse_allowance

CORDON = "journeyman.dev/cordon"
DRAIN = "journeyman.dev/drain"
VERBS = frozenset({CORDON, DRAIN, ALLOW})
DRAINED = "Drained"
UNDERSTOOD = "AnnotationsUnderstood"
LONGEST_REASON = 200


@dataclass(frozen=True)
class Asked:
    """What the annotations ask for.

    Attributes:
        hold: the hold of the owner `remote`, or None.
        drain: whether it is a drain.
        mistakes: one line for each annotation that cannot be understood, and so is not obeyed.
    """

    hold: Hold | None = None
    drain: bool = False
    mistakes: tuple[str, ...] = ()


def asked_of(annotations: Mapping[str, str], now: datetime) -> Asked:
    """Reads the verbs of a FleetNode.

    Args:
        annotations: its annotations.
        now: by the server's clock, as whoever wrote them is near that one.
    """
    holds: dict[str, Hold] = {}
    mistakes = []
    for name in (CORDON, DRAIN):
        text = annotations.get(name)
        if text is None:
            continue
        try:
            hold = _hold(name, text, now)
        except ValueError as error:
            mistakes.append(f"{name}: {error}")
        else:
            if hold.until is not None and now < hold.until:
                holds[name] = hold
    if ALLOW in annotations:
        try:
            parse_allowance(annotations[ALLOW], now)
        except ValueError as error:
            mistakes.append(f"{ALLOW}: {error}")
    return Asked(holds.get(DRAIN) or holds.get(CORDON), DRAIN in holds, tuple(mistakes))


def told_of(asked: Asked, carried: frozenset[str], *, draining: bool, running: int) -> tuple[Told, ...]:
    """The conditions that answer whoever asked.

    Args:
        asked: what was asked for.
        carried: the conditions of ours that the node carries; those are kept true, others are not begun.
        draining: whether the control plane has taken a beat that says Draining; until then work may come.
        running: how much runs here: tasks and jobs of the lane.
    """
    told = []
    if asked.drain or DRAINED in carried:
        told.append(_drained(asked, draining=draining, running=running))
    if asked.mistakes or UNDERSTOOD in carried:
        status = ConditionStatus.FALSE if asked.mistakes else ConditionStatus.TRUE
        message = "; ".join(asked.mistakes) or "all annotations of ours were understood"
        told.append(Told(UNDERSTOOD, status, "Malformed" if asked.mistakes else "Understood", message))
    return tuple(told)


def _drained(asked: Asked, *, draining: bool, running: int) -> Told:
    if not asked.drain:
        return Told(DRAINED, ConditionStatus.FALSE, "NotDraining", "nobody asks for a drain")
    if not draining:
        return Told(DRAINED, ConditionStatus.FALSE, "Beginning", "the node does not say Draining yet")
    if running:
        return Told(DRAINED, ConditionStatus.FALSE, "WorkRuns", f"{running} at work")
    return Told(DRAINED, ConditionStatus.TRUE, "NothingRuns", "nothing runs here, and nothing new begins")


def _hold(name: str, text: str, now: datetime) -> Hold:
    """Raises ValueError: it is no end with a reason."""
    end, _, reason = text.strip().partition(" ")
    reason = " ".join(reason.split())
    try:
        until = parse_time(end)
    except ValueError:
        raise ValueError("begin with its end, such as 2026-12-01T18:00:00Z") from None
    if not reason:
        raise ValueError("add the reason after the end")
    if until - now > LONGEST:
        raise ValueError(f"the end is more than {LONGEST.days} days away")
    verb = name.partition("/")[2]
    return Hold(Owner.REMOTE, f"{verb}: {reason[:LONGEST_REASON]}", now, until)
