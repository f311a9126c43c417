"""Who may start: what a grant reserves counts at once, so that a burst cannot pass on one reading.

Order is round-robin over the leads, first come first served within each, and nobody overtakes: work that
is waiting for room gets it before smaller work that came later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from journeyman.core.gates.marks import AdmissionMarks
from journeyman.core.gates.verdict import Verdict
from journeyman.core.quantities import bytes_text


@dataclass(frozen=True)
class Need:
    """What work asks for; zero means "nothing to speak of"."""

    ram_bytes: int = 0
    disk_bytes: int = 0
    vram_bytes: int = 0
    cpus: float = 0.0
    slots: int = 1
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Room:
    """What the host has to give; None means that nobody knows, and then nothing is given.

    Attributes:
        ram_bytes, disk_bytes, vram_bytes: free now, beyond the reserve.
        cpus, slots: of the whole host.
        ram_total_bytes: all memory; more than that is never given.
    """

    ram_bytes: float | None
    disk_bytes: float | None
    vram_bytes: float | None
    cpus: float
    slots: int
    ram_total_bytes: float | None = None


@dataclass(frozen=True)
class Ticket:
    """Work that wants to start.

    Attributes:
        ticket_id: whose it is.
        lead: who sent it; leads take turns.
        need: what it asks for.
        queued_at: when it came, in seconds of the monotonic clock.
    """

    ticket_id: str
    lead: str
    need: Need
    queued_at: float


@dataclass(frozen=True)
class Reservation:
    """What has been granted to work that starts or runs.

    Attributes:
        ticket_id: whose it is.
        lead: who sent it.
        need: what was granted.
        granted_at: monotonic clock.
        observed_ram_bytes: what it uses of that by now.
    """

    ticket_id: str
    lead: str
    need: Need
    granted_at: float
    observed_ram_bytes: int = 0

    def outstanding_ram_bytes(self, now: float, marks: AdmissionMarks) -> float:
        """What readings of the host do not show yet."""
        seen = self.observed_ram_bytes >= self.need.ram_bytes * marks.reservation_seen_percent / 100
        if now - self.granted_at < marks.reservation_seconds:
            # A fresh reading may or may not show what the work has taken; counted twice is safe.
            return float(self.need.ram_bytes)
        return 0.0 if seen else float(max(0, self.need.ram_bytes - self.observed_ram_bytes))

    def outstanding_disk_bytes(self, now: float, marks: AdmissionMarks) -> float:
        """Disk is promised for the whole run, as nobody knows when it will be written."""
        return float(self.need.disk_bytes)


@dataclass(frozen=True)
class Denial:
    """Not now, or never.

    Attributes:
        ticket_id: whose it is.
        code: reason, CamelCase.
        message: one line for people.
        retry_after_seconds: when to ask again; None if that is no use.
        until: what it waits for; empty if only for its turn.
    """

    ticket_id: str
    code: str
    message: str
    retry_after_seconds: float | None
    until: str = ""


@dataclass(frozen=True)
class Admission:
    """The answer to all who wait."""

    granted: tuple[Reservation, ...] = ()
    denied: tuple[Denial, ...] = ()


@dataclass(frozen=True)
class _Left:
    ram: float | None
    disk: float | None
    vram: float | None
    cpus: float
    slots: int
    granted: tuple[Reservation, ...] = field(default=())

    def without(self, need: Need) -> _Left:
        return replace(
            self,
            ram=_minus(self.ram, need.ram_bytes),
            disk=_minus(self.disk, need.disk_bytes),
            vram=_minus(self.vram, need.vram_bytes),
            cpus=self.cpus - need.cpus,
            slots=self.slots - need.slots,
        )


def admit(
    queue: Sequence[Ticket],
    running: Sequence[Reservation],
    room: Room,
    verdict: Verdict,
    now: float,
    marks: AdmissionMarks,
) -> Admission:
    """Grants what fits, in turn, and says to everybody else why not and until when.

    Args:
        queue: all who wait.
        running: what was granted before and has not ended.
        room: from readings of the host, after its reserve.
        verdict: what the gates ask for.
        now: the monotonic clock.
        marks: the settings.
    """
    left = _left(running, room, now, marks)
    granted: list[Reservation] = []
    denied: list[Denial] = []
    blocked = ""
    for ticket in turns(queue, running):
        denial = (
            _never(ticket, room)
            or _closed(ticket, verdict)
            or _blocked(ticket, blocked, marks)
            or _short(ticket, left, marks)
        )
        if denial is None:
            granted.append(Reservation(ticket.ticket_id, ticket.lead, ticket.need, now))
            left = left.without(ticket.need)
            continue
        denied.append(denial)
        if denial.code not in {"GateClosed", "NeedExceedsHost"} and not blocked:
            blocked = ticket.ticket_id
    return Admission(tuple(granted), tuple(denied))


def turns(queue: Iterable[Ticket], running: Iterable[Reservation]) -> list[Ticket]:
    """The order of all who wait: the lead with the fewest grants first, then the one who waited longest."""
    load: dict[str, int] = {}
    for one in running:
        load[one.lead] = load.get(one.lead, 0) + 1
    waiting = sorted(queue, key=lambda ticket: (ticket.queued_at, ticket.ticket_id))
    order: list[Ticket] = []
    while waiting:
        turn = min(waiting, key=lambda ticket: (load.get(ticket.lead, 0), ticket.queued_at, ticket.ticket_id))
        load[turn.lead] = load.get(turn.lead, 0) + 1
        waiting.remove(turn)
        order.append(turn)
    return order


def _left(running: Sequence[Reservation], room: Room, now: float, marks: AdmissionMarks) -> _Left:
    return _Left(
        ram=_minus(room.ram_bytes, sum(one.outstanding_ram_bytes(now, marks) for one in running)),
        disk=_minus(room.disk_bytes, sum(one.outstanding_disk_bytes(now, marks) for one in running)),
        vram=_minus(room.vram_bytes, sum(one.need.vram_bytes for one in running)),
        cpus=room.cpus - sum(one.need.cpus for one in running),
        slots=room.slots - sum(one.need.slots for one in running),
    )


def _minus(amount: float | None, taken: float) -> float | None:
    return None if amount is None else amount - taken


def _never(ticket: Ticket, room: Room) -> Denial | None:
    """Work that could not run here even if nothing else did is told so, and is in nobody's way."""
    need = ticket.need
    asked: tuple[tuple[str, float, float | None], ...] = (
        ("slots", need.slots, room.slots),
        ("cpus", need.cpus, room.cpus),
        ("ram", need.ram_bytes, room.ram_total_bytes),
    )
    for what, wanted, most in asked:
        if most is not None and wanted > most:
            message = f"{what}: {_amount(what, wanted)} wanted, this host has {_amount(what, most)}"
            return Denial(ticket.ticket_id, "NeedExceedsHost", message, None)
    return None


def _amount(what: str, amount: float) -> str:
    return f"{amount:g}" if what in {"slots", "cpus"} else bytes_text(amount)


def _closed(ticket: Ticket, verdict: Verdict) -> Denial | None:
    closed = verdict.closed(ticket.need.capabilities)
    if not closed:
        return None
    wait = verdict.retry_after_seconds(ticket.need.capabilities)
    why = verdict.explanation(ticket.need.capabilities)
    return Denial(ticket.ticket_id, "GateClosed", why, wait, closed[0].until)


def _blocked(ticket: Ticket, blocked: str, marks: AdmissionMarks) -> Denial | None:
    if not blocked:
        return None
    return Denial(ticket.ticket_id, "NotYourTurn", f"{blocked} waits for room first", marks.retry_seconds)


def _short(ticket: Ticket, left: _Left, marks: AdmissionMarks) -> Denial | None:
    """What is short, or None.  What nobody knows is given to nobody who asks for it."""
    asked: tuple[tuple[str, float, float | None], ...] = (
        ("slots", ticket.need.slots, left.slots),
        ("cpus", ticket.need.cpus, left.cpus),
        ("ram", ticket.need.ram_bytes, left.ram),
        ("disk", ticket.need.disk_bytes, left.disk),
        ("vram", ticket.need.vram_bytes, left.vram),
    )
    for what, need, has in asked:
        if need <= 0 or (has is not None and need <= has):
            continue
        has_text = "unknown" if has is None else _amount(what, max(0.0, has))
        message = f"{what}: {_amount(what, need)} wanted, {has_text} left"
        return Denial(ticket.ticket_id, f"No{what.capitalize()}", message, marks.retry_seconds, "room")
    return None
