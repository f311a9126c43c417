"""Why a job failed: the first rule that matches, with its evidence."""

from __future__ import annotations

import pytest

from journeyman.core.failure import (
    Confidence,
    End,
    Kills,
    Surroundings,
    oomd_words,
    surroundings_of,
    why_it_ended,
)
from journeyman.core.gates.host_class import HostClass
from journeyman_updater.contract import WorkerExit
from tests.support.gates import reading

KILLED = WorkerExit(None, 9, 1.0, "n")
FAILED = WorkerExit(1, None, 1.0, "n")
UNIT = "dev.journeyman.agent.service"
CALM = Surroundings(HostClass.LINUX_SERVER, Kills(host=3, group=1, group_limit=5))
OOMD = (
    "Killed /system.slice/dev.journeyman.agent.service/worker-lane-1 due to memory pressure for "
    "/system.slice being 0.00% > 50.00% for > 20s with reclaim activity"
)


def after(kills: Kills = CALM.kills, **given: object) -> Surroundings:
    return Surroundings(**{"host": HostClass.LINUX_SERVER, "kills": kills, **given})  # type: ignore[arg-type]


def test_oomd_is_the_hosts_doing_whatever_average_it_logs() -> None:
    """systemd#35270: killed at Avg10 0.00; the job is not to blame, and the line is the evidence."""
    journal = f"Started userspace oom killer.\n{OOMD}\nKilled /user.slice/user-1000.slice due to swap\n"
    found = why_it_ended(End(KILLED, oomd=oomd_words(journal, UNIT)), CALM, after())
    assert (found.code, found.confidence, found.evidence) == ("OOMHost", Confidence.HIGH, (OOMD,))


def test_oomd_that_killed_somebody_else_is_no_evidence() -> None:
    """Only a group of our own unit counts."""
    assert oomd_words("Killed /user.slice/user-1000.slice/session-3.scope due to memory used", UNIT) == ""


@pytest.mark.parametrize(
    ("kills", "code", "confidence"),
    [
        pytest.param(Kills(4, 2, 6), "OOMOwnLimit", Confidence.HIGH, id="own-limit-hit"),
        pytest.param(Kills(4, 2, 5), "OOMHost", Confidence.HIGH, id="within-its-limit"),
        pytest.param(Kills(4, 1, 5), "OOMHost", Confidence.LOW, id="somewhere-on-the-host"),
        pytest.param(Kills(3, 1, 5), "Signal9", Confidence.HIGH, id="nobody-for-memory"),
        pytest.param(Kills(), "Signal9", Confidence.HIGH, id="nobody-tells"),
    ],
)
def test_whose_memory_ran_out_is_told_by_what_was_counted(
    kills: Kills, code: str, confidence: Confidence
) -> None:
    """oom_kill with oom is the group's own limit; without it, and on the host alone, somebody else's need."""
    found = why_it_ended(End(KILLED), CALM, after(kills))
    assert (found.code, found.confidence) == (code, confidence)


def test_where_limits_are_not_counted_a_kill_in_our_group_is_probably_its_limit() -> None:
    """Version 1 counts no `oom`, so it is said with less confidence."""
    before = Surroundings(HostClass.CONTAINER, Kills(0, 0, None))
    found = why_it_ended(End(KILLED), before, after(Kills(1, 1, None)))
    assert (found.code, found.confidence) == ("OOMOwnLimit", Confidence.LOW)


@pytest.mark.parametrize(
    ("host", "left", "code"),
    [
        (HostClass.PHONE_PROOT, 40.0, "PhantomKilled"),
        (HostClass.PHONE_TERMUX, 5.0, "LMKD"),
        (HostClass.PHONE_TERMUX, None, "LMKD"),
        (HostClass.MAC_LAPTOP, 5.0, "Jetsam"),
        (HostClass.MAC_LAPTOP, 40.0, "Signal9"),
    ],
)
def test_a_kill_that_nobody_owns_up_to(host: HostClass, left: float | None, code: str) -> None:
    """termux-app#2366: signal 9 and no line about memory, with memory left: Android counts processes."""
    here = Surroundings(host, available_memory_percent=left)
    found = why_it_ended(End(KILLED), here, here)
    assert found.code == code
    assert found.confidence is (Confidence.HIGH if code == "Signal9" else Confidence.LOW)


def test_on_a_phone_the_shim_dies_with_its_worker() -> None:
    """Nobody saw the end, and still there is a likely reason."""
    here = Surroundings(HostClass.PHONE_PROOT, available_memory_percent=40)
    assert why_it_ended(End(None), here, here).code == "PhantomKilled"
    assert why_it_ended(End(None), CALM, after()).code == "Unknown"


def test_a_sleep_of_the_host_explains_what_nothing_else_does() -> None:
    """actions/runner#3702, #1476 and agor#2006: a job that fails over a sleep has not crashed by itself."""
    found = why_it_ended(End(FAILED), CALM, after(slept_seconds=3600))
    assert (found.code, found.confidence) == ("HostSlept", Confidence.LOW)
    assert found.evidence == ("the host slept for 3600 s meanwhile",)
    assert why_it_ended(End(None), CALM, after(slept_seconds=3600)).code == "HostSlept"


@pytest.mark.parametrize(
    ("words", "free", "stuck", "code", "confidence"),
    [
        ("tar: write error: No space left on device", 50.0, False, "DiskFull", Confidence.HIGH),
        ("Error: ENOSPC", 50.0, True, "MetadataFull", Confidence.HIGH),
        ("", 0.4, False, "DiskFull", Confidence.LOW),
        ("", 1.4, False, "ExitNonZero", Confidence.HIGH),
        ("", None, False, "ExitNonZero", Confidence.HIGH),
    ],
)
def test_a_full_disk_by_its_words_or_by_what_is_free(
    words: str, free: float | None, code: str, confidence: Confidence, *, stuck: bool
) -> None:
    """What the job says is sure; that nothing is free is a hint."""
    found = why_it_ended(
        End(FAILED, last_words=words), CALM, after(free_disk_percent=free, metadata_full=stuck)
    )
    assert (found.code, found.confidence) == (code, confidence)


def test_what_we_did_ourselves_comes_first() -> None:
    """A job that the gate killed was not killed by the phone, and one that was not started did not fail."""
    phone = Surroundings(HostClass.PHONE_PROOT, available_memory_percent=40, slept_seconds=9)
    before = Surroundings(HostClass.PHONE_PROOT)
    assert why_it_ended(End(KILLED, stopped_by="GateStopped:thermal"), before, phone).code == (
        "GateStopped:thermal"
    )
    assert why_it_ended(End(FAILED, error="no such program"), before, phone).code == "SpawnFailed"
    done = WorkerExit(0, None, 1.0, "n")
    assert why_it_ended(End(done, stopped_by="Cancelled"), before, phone).code == "Succeeded"


def test_the_host_is_seen_through_its_readings_and_silence_is_unknown() -> None:
    """The fullest disk and the least memory count; what is not known is None and not zero."""
    readings = [
        reading("disk.a.free", 5.0), reading("disk.a.total", 1000.0),
        reading("disk.b.free", 900.0), reading("disk.b.total", 1000.0),
        reading("disk.c.free", 0.0), reading("disk.b.metadata_full", 1.0),
        reading("memory.available_percent", None),
    ]  # fmt: skip
    found = surroundings_of(readings, HostClass.LINUX_SERVER, Kills(), 7.0)
    assert (found.free_disk_percent, found.available_memory_percent) == (0.5, None)
    assert (found.metadata_full, found.slept_seconds) == (True, 7.0)
