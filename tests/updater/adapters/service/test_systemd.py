"""How systemctl lies and refuses, row by row, and what comes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.errors import Reason, RestartError
from journeyman_updater.ports import CommandResult
from tests.support.managed_hosts import FakeSystemdHost
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: the dummy agents read /proc"),
]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FakeSystemdHost]:
    """0.1.0 runs under the stand-in."""
    made = FakeSystemdHost(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("verb", "code", "stderr", "reason"),
    [
        pytest.param("restart", 0, "", Reason.RESTART_UNPROVEN, id="no-op with rc 0"),
        pytest.param(
            "restart",
            1,
            "Failed to restart unit: start request repeated too quickly.\n",
            Reason.START_LIMITED,
            id="start limit",
        ),
        pytest.param(
            "restart", 1, "Failed to restart unit: Access denied\n", Reason.RESTART_NOT_PERMITTED, id="denied"
        ),
        pytest.param(
            "restart", 4, "Interactive authentication required.\n", Reason.RESTART_NOT_PERMITTED, id="polkit"
        ),
        pytest.param(
            "show",
            1,
            "Failed to connect to bus: No medium found\n",
            Reason.DOMAIN_UNAVAILABLE,
            id="no bus",
        ),
        pytest.param(
            "show",
            127,
            "systemctl: No such file or directory\n",
            Reason.RESTART_NOT_PERMITTED,
            id="no systemctl",
        ),
    ],
)
def test_a_refusal_has_a_name(
    host: FakeSystemdHost, verb: str, code: int, stderr: str, reason: Reason
) -> None:
    """Each way in which nothing happens ends in its own reason, with advice, and the agent runs on."""
    before = host.reported_pid()
    host.fake.answers[verb] = CommandResult(code, stderr=stderr)
    with pytest.raises(RestartError) as caught:
        host.manager.restart()
    assert caught.value.reason is reason
    assert caught.value.advice
    assert host.reported_pid() == before


def test_a_changed_unit_is_loaded_before_the_restart(host: FakeSystemdHost) -> None:
    """The manager reads its units again, and then the restart is asked for."""
    host.fake.changed = True
    host.fake.calls.clear()
    host.manager.restart()
    verbs = [verb for verb in host.fake.calls if verb != "show"]
    assert verbs == ["daemon-reload", "reset-failed", "restart"]


def test_a_unit_that_stays_changed_is_named(host: FakeSystemdHost) -> None:
    """Where daemon-reload does not help, the old unit is not started in place of the new one."""
    host.fake.changed = True
    host.fake.answers["daemon-reload"] = CommandResult(0)
    with pytest.raises(RestartError) as caught:
        host.manager.restart()
    assert caught.value.reason is Reason.NEED_DAEMON_RELOAD
    assert host.starts() == ["0.1.0"]


def test_a_used_up_start_limit_does_not_stop_a_rollback(host: FakeSystemdHost) -> None:
    """reset-failed comes before each explicit start."""
    host.fake.burst = 1
    for starts in (2, 3):
        host.manager.restart()
        eventually(lambda starts=starts: len(host.starts()) == starts)  # type: ignore[misc]


def test_a_start_limit_that_cannot_be_cleared_is_named(host: FakeSystemdHost) -> None:
    """start-limit-hit shows in the unit's result, not in systemctl's exit code."""
    host.fake.burst = 1
    host.fake.answers["reset-failed"] = CommandResult(1)
    with pytest.raises(RestartError) as caught:
        host.manager.restart()
    assert caught.value.reason is Reason.START_LIMITED


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("masked", Reason.SERVICE_DISABLED),
        ("not-found", Reason.RESTART_NOT_PERMITTED),
        ("bad-setting", Reason.RESTART_NOT_PERMITTED),
    ],
)
def test_a_unit_that_can_never_start_is_left_alone(host: FakeSystemdHost, state: str, reason: Reason) -> None:
    """Nothing is stopped where nothing could be started again."""
    host.fake.load_state = state
    with pytest.raises(RestartError) as caught:
        host.manager.restart()
    assert caught.value.reason is reason
    assert "restart" not in host.fake.calls
