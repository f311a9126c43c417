"""launchd where it goes wrong: each reply that was seen in the field, and what we make of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.contract import identity_of
from journeyman_updater.errors import HostError, Reason, RestartError
from tests.support.launchd_bench import FakeLaunchdBench, agent_plist
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[FakeLaunchdBench]:
    """A system daemon that is installed and not started."""
    made = FakeLaunchdBench(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def running(bench: FakeLaunchdBench) -> FakeLaunchdBench:
    """The same, with its agent running."""
    bench.start()
    bench.agent.wait_for_start(1)
    return bench


def reason_of_refusal(bench: FakeLaunchdBench) -> Reason:
    with pytest.raises(RestartError) as caught:
        bench.manager.restart()
    return caught.value.reason


# The fast way: the agent's own stop.


def test_a_restart_never_kills_and_never_uses_the_legacy_verbs(running: FakeLaunchdBench) -> None:
    """SIGTERM and a kickstart without -k are all that a healthy agent's restart takes."""
    running.manager.restart()
    running.agent.wait_for_start(2)
    assert running.acts() == ["kill", "kickstart"]


def test_a_start_that_launchd_keeps_back_is_nudged(running: FakeLaunchdBench) -> None:
    """In Low Power Mode an ended job waits for ever; the kickstart ends that."""
    running.launchd.faults.respawn_kept_back = True
    token = running.manager.token()
    running.manager.restart()
    running.agent.wait_for_start(2)
    assert running.manager.started_since(token)


def test_an_agent_that_hangs_is_killed_by_kickstart_k(running: FakeLaunchdBench) -> None:
    """-k is for an agent that has not stopped in time."""
    running.agent.set("stubborn")
    running.manager.restart()
    running.agent.wait_for_start(2)
    assert running.acts()[:2] == ["kill", "kickstart -k"]


def test_a_refused_signal_is_an_error_and_costs_nothing(running: FakeLaunchdBench) -> None:
    """Who may not ask the agent to stop does not kill it, either, and is told so."""
    old = running.manager.running()
    running.launchd.faults.refused.add("kill")
    assert reason_of_refusal(running) is Reason.RESTART_NOT_PERMITTED
    assert running.manager.running() == old
    assert running.acts() == ["kill"]


def test_a_lie_of_all_verbs_is_an_error(running: FakeLaunchdBench) -> None:
    """Codes of 0 with the same pid and the same `runs` are no restart."""
    running.lie()
    assert reason_of_refusal(running) is Reason.RESTART_UNPROVEN


def test_a_release_that_crashes_at_once_was_started_all_the_same(running: FakeLaunchdBench) -> None:
    """That it does not last is for the trial to judge: `runs` rose, so the restart happened."""
    token = running.manager.token()
    running.agent.set("crash")
    running.manager.restart()
    assert not running.manager.started_since(token)


def test_the_job_is_restarted_in_the_domain_that_has_it(running: FakeLaunchdBench, tmp_path: Path) -> None:
    """A label that was registered by hand in another domain is found, and restarted there."""
    running.take_down()
    moved = tmp_path / "moved.plist"
    moved.write_bytes(agent_plist(tmp_path, running.agent, "user/501", running.label))
    running.launchd.register("user/501", moved)
    running.agent.wait_for_start(2)
    running.plist.write_bytes(moved.read_bytes())
    token = running.manager.token()
    running.manager.restart()
    running.agent.wait_for_start(3)
    assert running.manager.started_since(token)
    assert [call for call in running.tool.calls if call[0] == "kickstart"] == [
        ("kickstart", "user/501/dev.journeyman.agent")
    ]


def test_two_registrations_are_in_doubt(running: FakeLaunchdBench, tmp_path: Path) -> None:
    """With the label in two domains nobody can say which agent started."""
    token = running.manager.token()
    second = tmp_path / "second.plist"
    second.write_bytes(agent_plist(tmp_path, running.agent, "gui/501", running.label))
    running.launchd.register("gui/501", second)
    running.agent.wait_for_start(2)
    os.kill(running.agent.starts()[0], signal.SIGKILL)
    running.agent.wait_for_start(3)
    assert len(running.launchctl.look().found) == 2
    assert not running.manager.started_since(token)


# The other way: a changed property list.


def test_a_changed_list_is_read_by_registering_anew(running: FakeLaunchdBench) -> None:
    """bootout, wait, enable, bootstrap, kickstart, in that order; the stop is in good order."""
    old = running.agent.wait_for_start(1)
    token = running.manager.token()
    running.write_plist(CHANGED="yes")
    running.manager.restart()
    new = running.agent.wait_for_start(2)
    assert running.acts() == ["bootout", "enable", "bootstrap", "kickstart"]
    assert running.manager.started_since(token)
    assert running.agent.stops() == [old]
    assert b"CHANGED=yes" in Path(f"/proc/{new}/environ").read_bytes()


def test_kickstart_k_runs_the_old_list(running: FakeLaunchdBench) -> None:
    """What is in memory is started: that is why a changed list needs more, and how it is noticed."""
    running.write_plist(CHANGED="yes")
    running.launchctl.kickstart("system", kill=True)
    new = running.agent.wait_for_start(2)
    assert b"CHANGED=yes" not in Path(f"/proc/{new}/environ").read_bytes()
    found = running.launchctl.look().first
    assert found is not None
    assert running.registration().is_old(found)


def test_a_dying_registration_is_waited_for(running: FakeLaunchdBench) -> None:
    """An agent that stops slowly keeps its registration until ExitTimeOut has killed it."""
    running.take_down()
    running.agent.set("stubborn")
    running.write_plist(10)
    running.manager.restart()
    old = running.agent.wait_for_start(2)
    token = running.manager.token()
    running.write_plist(10, CHANGED="yes")
    running.manager.restart()
    running.agent.wait_for_start(3)
    assert identity_of(old) is None
    assert running.manager.started_since(token)
    assert running.acts().count("bootstrap") == 2


def test_the_next_run_of_the_updater_can_prove_it_too(running: FakeLaunchdBench) -> None:
    """The proof needs no memory: the loaded list differs from the one of the token."""
    token = running.manager.token()
    running.write_plist(CHANGED="yes")
    running.manager.restart()
    running.agent.wait_for_start(2)
    assert running.new_manager().started_since(token)


def test_a_run_that_is_killed_between_removal_and_registration_is_finished_by_the_next(
    running: FakeLaunchdBench,
) -> None:
    """The next run finds nothing registered, registers the same list, and its start is proven."""
    token = running.manager.token()
    running.take_down()
    later = running.new_manager()
    later.restart()
    running.agent.wait_for_start(2)
    assert running.new_manager().started_since(token)


@pytest.mark.parametrize("unprinted", [set(), {"environment"}])
def test_a_registration_that_vanished_since_the_token_is_made_again(
    running: FakeLaunchdBench, unprinted: set[str]
) -> None:
    """That nothing was registered in between is a proof as well, if the text has no other."""
    running.launchd.faults.unprinted |= unprinted
    token = running.manager.token()
    running.take_down()
    running.manager.restart()
    running.agent.wait_for_start(2)
    assert running.manager.started_since(token)


def test_a_registration_that_somebody_else_removes_is_made_again(running: FakeLaunchdBench) -> None:
    """A bootout that is under way is waited for, and the agent comes back."""
    running.agent.set("stubborn")
    running.launchctl.bootout("system")
    running.manager.restart()
    running.agent.wait_for_start(2)


def test_a_bootout_that_does_nothing_leaves_the_agent_running(bench: FakeLaunchdBench) -> None:
    """The old registration is never bootstrapped over, and the old agent is still there."""
    bench.write_plist(1)
    bench.start()
    old = identity_of(bench.agent.wait_for_start(1))
    bench.write_plist(1, CHANGED="yes")
    bench.launchd.faults.lies.add("bootout")
    assert reason_of_refusal(bench) is Reason.RESTART_UNPROVEN
    assert "bootstrap" not in bench.acts()
    assert bench.manager.running() == old


@pytest.mark.parametrize("codes", [[5] * 4, [37], [36, 37, 5], [17], [119]])
def test_bootstrap_is_tried_again(bench: FakeLaunchdBench, codes: list[int]) -> None:
    """5, 36 and 37 mean `not yet`, or anything; what counts is whether the job is there."""
    bench.launchd.faults.forced["bootstrap"] = list(codes)
    bench.manager.restart()
    bench.agent.wait_for_start(1)
    assert bench.acts().count("bootstrap") == len(codes) + 1


def test_bootout_that_is_under_way_or_over_is_fine(running: FakeLaunchdBench) -> None:
    """36 and 3 are no errors if the registration goes."""
    running.write_plist(CHANGED="yes")
    running.launchctl.bootout("system")
    running.launchd.faults.forced["bootout"] = [36]
    running.manager.restart()
    running.agent.wait_for_start(2)


def test_bootstrap_that_never_succeeds_ends(bench: FakeLaunchdBench) -> None:
    """After its deadline the error says what launchctl said."""
    bench.launchd.faults.refused.add("bootstrap")
    assert reason_of_refusal(bench) is Reason.RESTART_NOT_PERMITTED


def test_a_registered_job_that_is_never_spawned_is_kickstarted(bench: FakeLaunchdBench) -> None:
    """RunAtLoad and KeepAlive promise nothing: `speculative` lasts until a kickstart."""
    bench.launchd.faults.never_spawns = True
    token = bench.manager.token()
    bench.manager.restart()
    bench.agent.wait_for_start(1)
    assert bench.manager.started_since(token)


@pytest.mark.parametrize("says", [119, 5, 0])
def test_a_disabled_label_is_enabled(bench: FakeLaunchdBench, says: int) -> None:
    """An override from an earlier life is removed, whatever launchd says about it, or nothing."""
    bench.launchd.faults.disabled_says = says
    bench.launchd.override("system", bench.label, disabled=True)
    bench.manager.restart()
    bench.agent.wait_for_start(1)


def test_a_label_that_was_disabled_while_it_ran_is_enabled(running: FakeLaunchdBench) -> None:
    """An override does not stop what runs, but it keeps the next start back: it is removed then."""
    running.launchd.override("system", running.label, disabled=True)
    running.manager.restart()
    running.agent.wait_for_start(2)
    assert running.acts() == ["kill", "kickstart", "enable", "kickstart"]


@pytest.mark.parametrize("says", [119, 0])
def test_a_label_that_stays_disabled_is_named(bench: FakeLaunchdBench, says: int) -> None:
    """Where we may not enable it, the error says that it is disabled."""
    bench.launchd.faults.disabled_says = says
    bench.launchd.override("system", bench.label, disabled=True)
    bench.launchd.faults.refused.add("enable")
    assert reason_of_refusal(bench) is Reason.SERVICE_DISABLED


def test_an_override_outlives_a_boot_and_is_healed(running: FakeLaunchdBench) -> None:
    """A stop by `disable` keeps the agent down after the boot; a restart brings it back."""
    running.launchd.override("system", running.label, disabled=True)
    running.launchd.reboot()
    assert running.manager.running() is None
    running.manager.restart()
    running.agent.wait_for_start(2)


def test_a_boot_starts_a_system_job(running: FakeLaunchdBench) -> None:
    """What lies in LaunchDaemons and is not disabled runs after a boot, without anybody's help."""
    running.launchd.reboot()
    pid = running.agent.wait_for_start(2)
    assert running.manager.running() == identity_of(pid)


def test_a_domain_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """Over ssh there is no gui domain, and the error says what to do."""
    bench = FakeLaunchdBench(tmp_path, "gui/501", ("system", "user/501"))
    try:
        assert reason_of_refusal(bench) is Reason.DOMAIN_UNAVAILABLE
    finally:
        bench.close()


@pytest.mark.parametrize("damage", ["typo", "no log folder", "no program", "no list"])
def test_an_unfit_list_stops_nothing(running: FakeLaunchdBench, damage: str) -> None:
    """What launchd would answer with a bare 5 after the old agent is gone is seen before."""
    old = running.manager.running()
    running.write_plist(CHANGED="yes")
    text = running.plist.read_bytes()
    folder, program = str(running.folder).encode(), str(running.agent.program).encode()
    running.plist.write_bytes(
        {
            "typo": text.replace(b"KeepAlive", b"KeepAlve"),
            "no log folder": text.replace(folder + b"/agent.log", folder + b"/gone/agent.log"),
            "no program": text.replace(program, program + b"-gone"),
            "no list": text.replace(b"<dict>", b"<array>").replace(b"</dict>", b"</array>"),
        }[damage]
    )
    found = running.launchctl.look().first
    assert found is not None
    with pytest.raises(RestartError) as caught:
        running.registration().renew(found)
    assert caught.value.reason is Reason.OLD_PLIST
    assert running.manager.running() == old
    assert running.acts() == []


# When launchctl itself cannot be believed.


@pytest.mark.parametrize("name", ["runs", "pid", "state", "environment"])
def test_text_of_another_release_is_read_as_far_as_it_goes(running: FakeLaunchdBench, name: str) -> None:
    """Without `runs` or `pid` nothing is proven; without the others everything is."""
    running.launchd.faults.unprinted.add(name)
    token = running.manager.token()
    os.kill(running.agent.wait_for_start(1), signal.SIGKILL)
    running.agent.wait_for_start(2)
    eventually(lambda: running.launchctl.look().found)
    assert running.manager.started_since(token) is (name in {"state", "environment"})


def test_a_launchctl_that_hangs_is_no_absence(running: FakeLaunchdBench) -> None:
    """No answer is neither a running agent nor a free label, so nothing is registered over it."""
    running.launchd.faults.hanging.add("print")
    quick = running.new_launchctl(timeout_seconds=0.3)
    look = quick.look()
    assert look.found == ()
    assert not look.is_absent
    assert len(look.doubtful) == 3


def test_a_token_that_was_taken_in_the_dark_proves_nothing(running: FakeLaunchdBench) -> None:
    """Without an answer when the token was taken, the agent that ran all along would look like a new one."""
    running.launchd.faults.refused.add("print")
    token = running.manager.token()
    running.launchd.faults.refused.clear()
    assert not running.manager.started_since(token)


def test_an_agent_that_launchd_does_not_own_is_not_its_agent(bench: FakeLaunchdBench) -> None:
    """A process that somebody started by hand is not what launchd runs."""
    bench.launchd.faults.never_spawns = True
    bench.start()
    assert bench.manager.running() is None


# Install and uninstall.


def test_installs_what_is_sound(bench: FakeLaunchdBench) -> None:
    """The file is replaced by one that everybody may read and only its owner write."""
    text = agent_plist(bench.folder, bench.agent, "system", bench.label, environment={"A": "b"})
    bench.registration().install(text)
    assert bench.plist.read_bytes() == text
    assert bench.plist.stat().st_mode & 0o777 == 0o644


def test_installs_nothing_unsound(bench: FakeLaunchdBench) -> None:
    """A list that launchd would swallow in silence is refused, and the old one stays."""
    before = bench.plist.read_bytes()
    with pytest.raises(HostError) as caught:
        bench.registration().install(before.replace(b"ThrottleInterval", b"ThrotleInterval"))
    assert "ThrotleInterval is no key" in caught.value.message
    assert bench.plist.read_bytes() == before


def test_uninstall_leaves_no_registration_in_any_domain(running: FakeLaunchdBench, tmp_path: Path) -> None:
    """Both registrations and the file are gone, and so are the agents."""
    second = tmp_path / "second.plist"
    second.write_bytes(agent_plist(tmp_path, running.agent, "gui/501", running.label))
    running.launchd.register("gui/501", second)
    running.agent.wait_for_start(2)
    running.registration().uninstall()
    assert running.launchctl.look().is_absent
    assert not running.plist.exists()
    assert [identity_of(pid) for pid in running.agent.starts()] == [None, None]
    running.registration().uninstall()
