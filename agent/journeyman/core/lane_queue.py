"""The queue of the host lane: who may start now, and what everybody else is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from journeyman.core.gates.admission import Admission, Denial, Reservation, Room, Ticket, admit, turns
from journeyman.core.gates.marks import AdmissionMarks
from journeyman.core.gates.verdict import Verdict
from journeyman.core.holds import Holds
from journeyman.core.lane import held_denial, waiting_line


@dataclass(frozen=True)
class Told:
    """What a job in the queue is told.

    Attributes:
        line: why it waits, in which place, and until when.
        denial: the same for programs.
    """

    line: str
    denial: Denial


@dataclass(frozen=True)
class Decision:
    """What follows for all who wait; each is in one of the two."""

    granted: tuple[Reservation, ...] = ()
    told: dict[str, Told] = field(default_factory=dict)


@dataclass(frozen=True)
class Offer:
    """What the host can take on at this moment.

    Attributes:
        room: what there is to give.
        verdict: what the gates ask for.
        holds: who else keeps work away.
    """

    room: Room
    verdict: Verdict
    holds: Holds


def decide(
    queue: Sequence[Ticket], running: Sequence[Reservation], offer: Offer, now: float, marks: AdmissionMarks
) -> Decision:
    """Grants what may start now; arguments as for `admit`."""
    found = _held(queue, offer.holds, marks) or admit(queue, running, offer.room, offer.verdict, now, marks)
    waiting = {denial.ticket_id for denial in found.denied}
    order = [ticket.ticket_id for ticket in turns(queue, running) if ticket.ticket_id in waiting]
    told = {
        denial.ticket_id: Told(waiting_line(denial, order.index(denial.ticket_id) + 1, len(order)), denial)
        for denial in found.denied
    }
    return Decision(found.granted, told)


def _held(queue: Iterable[Ticket], holds: Holds, marks: AdmissionMarks) -> Admission | None:
    if not holds:
        return None
    hold = holds.held[0]
    return Admission(denied=tuple(held_denial(one.ticket_id, hold, marks.retry_seconds) for one in queue))
