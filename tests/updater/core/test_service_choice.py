"""Which service manager keeps the agent."""

from __future__ import annotations

import pytest

from journeyman_updater.core.service_choice import (
    Choice,
    HostManagers,
    choose,
    starts_when,
    user_of_agent,
)

LINUX = HostManagers("linux", is_root=True, has_systemd=True, has_user_manager=True)
ADA = HostManagers("linux", is_root=False, has_systemd=True, has_user_manager=True)
MAC = HostManagers("darwin", is_root=True)
MAC_ADA = HostManagers("darwin", is_root=False)
BOX = HostManagers("linux", is_root=True)
PHONE = HostManagers("linux", is_root=False, runit_folder="/var/service")


@pytest.mark.parametrize(
    ("host", "system", "expected"),
    [
        (LINUX, None, Choice("systemd", True)),
        (ADA, None, Choice("systemd-user", False)),
        (LINUX, False, Choice("systemd-user", False)),
        (MAC, None, Choice("launchd", True)),
        (MAC_ADA, None, Choice("launchd-gui", False)),
        (BOX, None, Choice("none", False)),
        (PHONE, None, Choice("runit", False)),
    ],
)
def test_auto_takes_what_is_there(*, host: HostManagers, system: bool | None, expected: Choice) -> None:
    """Root gets the machine's manager, a user the own one, and without either runit or none."""
    assert choose(host, system=system) == expected


@pytest.mark.parametrize(
    ("host", "wanted", "system", "says"),
    [
        (ADA, "auto", True, "only root"),
        (ADA, "systemd", None, "only root"),
        (LINUX, "systemd-user", True, "contradict"),
        (LINUX, "systemd", False, "contradict"),
        (LINUX, "launchd", None, "no launchd on this host"),
        (MAC, "systemd", None, "no systemd on this host"),
        (BOX, "auto", True, "systemd does not run"),
        (BOX, "runit", None, "runsvdir watches"),
        (HostManagers("linux", is_root=False), "systemd-user", None, "no systemd of this user"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    *, host: HostManagers, wanted: str, system: bool | None, says: str
) -> None:
    """What is not there, not allowed, or contradicts itself is refused with an advice."""
    choice = choose(host, wanted, system=system)
    assert says in choice.problem
    assert choice.advice


def test_when_each_starts() -> None:
    """Only lingering lets a user's own systemd start at boot."""
    assert starts_when("systemd-user") == "login"
    assert starts_when("systemd-user", lingers=True) == "boot"
    assert (starts_when("launchd"), starts_when("none")) == ("boot", "never")


@pytest.mark.parametrize(
    ("platform", "named", "sudo_user", "runs"),
    [
        ("linux", "", "ada", "journeyman"),
        ("linux", "bob", "ada", "bob"),
        ("darwin", "", "ada", "ada"),
        ("darwin", "bob", "ada", "bob"),
        ("darwin", "", "root", ""),
        ("darwin", "", "", ""),
    ],
)
def test_a_mac_runs_the_agent_as_who_called_sudo(
    platform: str, named: str, sudo_user: str, runs: str
) -> None:
    """Linux has a user of its own for it, a Mac has not; root is never taken for a person."""
    assert user_of_agent(platform, named, sudo_user) == runs
