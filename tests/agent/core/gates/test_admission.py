"""Who may start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.gates.admission import Need, Reservation, Room, Ticket, admit, turns
from journeyman.core.gates.machine import Phase, Reason
from journeyman.core.gates.marks import AdmissionMarks
from journeyman.core.gates.rules import Level
from journeyman.core.gates.verdict import GateVerdict, Verdict

GB = 1 << 30
MARKS = AdmissionMarks()
OPEN = Verdict((GateVerdict("memory", Phase.OPEN, Level.OPEN, 0.0, ()),))
SHUT = Verdict((
    GateVerdict(
        "power", Phase.CLOSED, Level.HOLD, 0.0, (Reason("OnBattery", ""),),
        retry_after_seconds=240, until="plugged-in", dwell_seconds=300,
    ),
))  # fmt: skip


def room(ram: float | None = 100 * GB, *, slots: int = 64, disk: float | None = 1000 * GB) -> Room:
    return Room(ram, disk, 0, 8, slots, ram_total_bytes=128 * GB)


def ticket(name: str, need: Need | None = None, *, lead: str = "lead", at: float = 0.0) -> Ticket:
    return Ticket(name, lead, need or Need(ram_bytes=GB), at)


def test_twenty_in_one_second_and_room_for_three() -> None:
    """Exactly three start on one reading of the host; the rest say why and when, and follow in turn."""
    need = Need(ram_bytes=4 * GB)
    queue = [ticket(f"t{number:02}", need, at=number / 20) for number in range(20)]
    running: list[Reservation] = []
    for one in queue:
        waiting = [each for each in queue if each.queued_at <= one.queued_at]
        names = {each.ticket_id for each in running}
        found = admit(
            [each for each in waiting if each.ticket_id not in names], running, room(14 * GB), OPEN, 1, MARKS
        )
        running += found.granted
        assert all(denial.message and denial.retry_after_seconds for denial in found.denied)
    assert [each.ticket_id for each in running] == ["t00", "t01", "t02"]
    running.pop(0)
    rest = [one for one in queue if one.ticket_id > "t02"]
    following = admit(rest, running, room(14 * GB), OPEN, 2, MARKS)
    assert [one.ticket_id for one in following.granted] == ["t03"]


def test_a_closed_gate_says_why_and_when_to_ask_again() -> None:
    """The refusal is cheap and complete."""
    (denial,) = admit([ticket("a")], [], room(), SHUT, 0, MARKS).denied
    assert (denial.code, denial.retry_after_seconds, denial.until) == ("GateClosed", 240, "plugged-in")
    assert "OnBattery" in denial.message


def test_a_grant_counts_in_full_for_a_minute_and_then_until_it_shows() -> None:
    """A model that takes a while to load keeps what it was promised."""
    granted = Reservation("a", "lead", Need(ram_bytes=10 * GB), granted_at=0)
    assert granted.outstanding_ram_bytes(59, MARKS) == 10 * GB
    loading = Reservation("a", "lead", Need(ram_bytes=10 * GB), 0, observed_ram_bytes=4 * GB)
    assert loading.outstanding_ram_bytes(61, MARKS) == 6 * GB
    loaded = Reservation("a", "lead", Need(ram_bytes=10 * GB), 0, observed_ram_bytes=8 * GB)
    assert loaded.outstanding_ram_bytes(61, MARKS) == 0


def test_nothing_is_given_of_what_nobody_knows() -> None:
    """Unknown memory is not zero and not plenty: who asks for some waits, who asks for none may start."""
    unknown = room(None)
    assert admit([ticket("a")], [], unknown, OPEN, 0, MARKS).denied[0].code == "NoRam"
    assert admit([ticket("a", Need())], [], unknown, OPEN, 0, MARKS).granted


def test_nobody_overtakes_work_that_waits_for_room() -> None:
    """Small work would otherwise keep big work out for ever."""
    queue = [ticket("big", Need(ram_bytes=50 * GB)), ticket("small", at=1)]
    found = admit(queue, [], room(10 * GB), OPEN, 2, MARKS)
    assert [(one.ticket_id, one.code) for one in found.denied] == [("big", "NoRam"), ("small", "NotYourTurn")]


def test_work_that_can_never_fit_is_in_nobodys_way() -> None:
    """It is told so at once, and is not told to ask again."""
    queue = [ticket("huge", Need(ram_bytes=500 * GB)), ticket("small", at=1)]
    found = admit(queue, [], room(), OPEN, 2, MARKS)
    assert [one.ticket_id for one in found.granted] == ["small"]
    assert (found.denied[0].code, found.denied[0].retry_after_seconds) == ("NeedExceedsHost", None)


def test_leads_take_turns() -> None:
    """A lead that sends twenty at once does not shut out one that sends one a second later."""
    queue = [ticket(f"a{number}", lead="a") for number in range(3)] + [ticket("b0", lead="b", at=1)]
    assert [one.ticket_id for one in turns(queue, [])] == ["a0", "b0", "a1", "a2"]


needs = st.builds(
    Need, ram_bytes=st.integers(0, 8 * GB), disk_bytes=st.integers(0, 8 * GB), slots=st.integers(1, 3)
)


@given(st.lists(needs, max_size=20), st.integers(0, 20 * GB), st.integers(0, 20 * GB), st.integers(0, 8))
def test_what_is_granted_always_fits(given_needs: list[Need], ram: int, disk: int, slots: int) -> None:
    """However the needs are mixed, their sum stays within the room, and everybody gets an answer."""
    queue = [ticket(f"t{number}", need) for number, need in enumerate(given_needs)]
    found = admit(queue, [], room(ram, slots=slots, disk=disk), OPEN, 0, MARKS)
    assert sum(one.need.ram_bytes for one in found.granted) <= ram
    assert sum(one.need.disk_bytes for one in found.granted) <= disk
    assert sum(one.need.slots for one in found.granted) <= slots
    assert len(found.granted) + len(found.denied) == len(queue)
