"""When launchd is believed to have started the agent anew: a table."""

from __future__ import annotations

import pytest

from journeyman_updater.contract import ProcessIdentity
from journeyman_updater.core.launchd_proof import Sight, is_new_start

OLD = ProcessIdentity("boot", 100, "5000")
NEW = ProcessIdentity("boot", 101, "6000")
BEFORE = Sight("boot", "system", runs=3, unit="a")


def proven(
    old: ProcessIdentity | None = OLD,
    new: ProcessIdentity = NEW,
    before: Sight = BEFORE,
    *,
    now: Sight,
    seen_absent: bool = False,
) -> bool:
    return is_new_start(before, old, now, new, seen_absent=seen_absent)


@pytest.mark.parametrize(
    ("now", "is_proven"),
    [
        pytest.param(Sight("boot", "system", 4, "a"), True, id="runs went up"),
        pytest.param(Sight("boot", "system", 3, "a"), False, id="runs as before: a lie"),
        pytest.param(Sight("boot", "system", 1, "a"), False, id="registered anew by somebody, same list"),
        pytest.param(Sight("boot", "system", 1, "b"), True, id="registered anew with another list"),
        pytest.param(Sight("boot", "system", None, "a"), False, id="runs unknown"),
        pytest.param(Sight("boot", "system", 4, None), True, id="list unknown, runs went up"),
        pytest.param(Sight("boot", "system", 1, None), False, id="list unknown, runs began again"),
        pytest.param(Sight("boot", "gui/501", 9, "a"), False, id="the counter of another domain"),
    ],
)
def test_another_process_needs_launchds_own_sign(now: Sight, is_proven: bool) -> None:  # noqa: FBT001
    """Beside a new process the counter has to rise, or the registration has to be another one."""
    assert proven(now=now) is is_proven


def test_the_same_pid_is_no_new_start() -> None:
    """Whatever launchd counts: the process that ran is no proof."""
    assert not proven(new=OLD, now=Sight("boot", "system", 4, "a"))
    assert not proven(new=OLD, now=Sight("boot", "system", 1, "b"), seen_absent=True)


def test_an_older_process_is_no_new_start() -> None:
    """A pid that differs but began earlier was there all along."""
    older = ProcessIdentity("boot", 101, "4000")
    assert not proven(new=older, now=Sight("boot", "system", 4, "a"))


@pytest.mark.parametrize(
    ("first", "second", "is_proven"),
    [
        ("Mon Nov 30 11:12:29 2026", "Mon Nov 30 11:12:30 2026", True),
        ("Mon Nov 30 11:12:29 2026", "Mon Nov 30 11:12:29 2026", True),
        ("Thu Dec 31 23:59:59 2026", "Fri Jan  1 00:00:01 2027", True),
        ("Mon Nov 30 11:12:29 2026", "Sun Nov 29 11:12:29 2026", False),
        ("Mon Nov 30 11:12:29 2026", "30.11.2026 11:12:30", False),
        ("nan", "nan", False),
    ],
)
def test_start_times_are_ordered_as_macos_writes_them(first: str, second: str, is_proven: bool) -> None:  # noqa: FBT001
    """By the second, so that equal ones may be two; a time that cannot be read is in doubt."""
    old, new = ProcessIdentity("boot", 100, first), ProcessIdentity("boot", 101, second)
    assert proven(old, new, now=Sight("boot", "system", 4, "a")) is is_proven


def test_an_absence_that_was_seen_makes_the_counter_meaningless() -> None:
    """After bootout and bootstrap `runs` begins again; that the old one was gone is the proof."""
    assert proven(now=Sight("boot", "system", 1, None), seen_absent=True)


def test_what_was_not_registered_is_new_when_it_runs() -> None:
    """A start where nothing was registered and nothing ran needs no counter."""
    assert proven(None, before=Sight("boot", None), now=Sight("boot", "system", 1, "a"))


def test_a_job_that_did_not_run_still_needs_the_counter() -> None:
    """A token without a process may come from text without a pid, so the counter decides."""
    assert proven(None, now=Sight("boot", "system", 4, "a"))
    assert not proven(None, now=Sight("boot", "system", 3, "a"))


def test_after_a_boot_everything_is_new() -> None:
    """No process and no counter outlives a boot."""
    new = ProcessIdentity("next boot", 100, "10")
    assert proven(new=new, now=Sight("next boot", "system", 1, "a"))


def test_a_sight_survives_the_journal() -> None:
    """What is written into the token comes back from it."""
    assert Sight.from_sign(BEFORE.to_sign()) == BEFORE


@pytest.mark.parametrize("sign", ["", "7", "[]", "{}", '{"boot_id": "b", "domain": "system", "extra": 1}'])
def test_a_sign_of_something_else_is_none(sign: str) -> None:
    """A token of another manager, or a damaged one, proves nothing."""
    assert Sight.from_sign(sign) is None
