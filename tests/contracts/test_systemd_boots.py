"""Reboots and power cuts of a host with real systemd."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.managed_hosts import SERVICE_USER
from tests.support.systemd_container import SystemdContainer, booted
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
FOLDER = "/srv/kept"
ROOT = f"{FOLDER}/state root"
BOOTS = pytest.mark.parametrize(
    "boot", [SystemdContainer.reboot, SystemdContainer.cut_power], ids=["reboot", "cut"]
)


@pytest.fixture
def container() -> Iterator[SystemdContainer]:
    """A container with the agent's user, who has a manager without a login and a place for a state root."""
    with booted() as made:
        made.run("useradd", "--create-home", SERVICE_USER)
        made.run("loginctl", "enable-linger", SERVICE_USER)
        yield made


def starts(container: SystemdContainer) -> list[str]:
    """What the guard has started, as the agents have written it."""
    return (container.tree / ROOT.lstrip("/") / "run/starts").read_text().split()


def systemctl(container: SystemdContainer, user: str | None, *words: str) -> str:
    """The system's manager for root, and for others their own."""
    if user is None:
        return container.run("systemctl", *words, check=False)
    bus = f"XDG_RUNTIME_DIR=/run/user/{container.run('id', '-u', user)}"
    return container.run("env", bus, "systemctl", "--user", *words, user=user, check=False)


def is_active(container: SystemdContainer, user: str | None = None) -> bool:
    return systemctl(container, user, "is-active", "dev.journeyman.agent") == "active"


@BOOTS
def test_the_agent_is_back_after_a_boot(
    container: SystemdContainer, boot: Callable[[SystemdContainer], None]
) -> None:
    """The active release runs after each boot, and nobody has to log in."""
    container.python("-m", "tests.support.boot_host", FOLDER)
    boot(container)
    eventually(lambda: is_active(container), within_seconds=30)
    assert starts(container) == ["0.1.0", "0.1.0"]


@pytest.mark.parametrize(
    ("boot", "user"),
    [
        pytest.param(SystemdContainer.reboot, None, id="reboot-system"),
        pytest.param(SystemdContainer.cut_power, None, id="cut-system"),
        pytest.param(SystemdContainer.reboot, SERVICE_USER, id="reboot-user"),
    ],
)
def test_a_trial_goes_on_after_a_boot(
    container: SystemdContainer, boot: Callable[[SystemdContainer], None], user: str | None
) -> None:
    """A boot in the middle of a trial neither commits nor undoes it, and the next updater judges it."""
    container.run("install", "-d", f"--owner={user or 'root'}", FOLDER)
    home = f"/home/{user}" if user else "/root"
    said = container.python("-m", "tests.support.boot_host", FOLDER, "outage", user=user, HOME=home)
    assert said == "inconclusive"
    boot(container)
    eventually(lambda: is_active(container, user), within_seconds=30)
    assert starts(container) == ["0.1.0", "0.2.0", "0.2.0"]
    said = json.loads(container.python("-m", "journeyman_updater", "--root", ROOT, user=user, HOME=home))
    assert (said["ending"], said["version"]) == ("inconclusive", "0.2.0")
    assert starts(container) == ["0.1.0", "0.2.0", "0.2.0"]


def test_nothing_is_left_of_a_container() -> None:
    """Mounts, cgroups, processes and folders are gone after it, also when a test fails in it."""
    names: list[str] = []

    def fail_inside() -> None:
        with booted() as container:
            names.append(container.tree.parent.name)
            assert names[0] in Path("/proc/self/mountinfo").read_text()
            container.run("false")

    with pytest.raises(AssertionError, match="ended with 1"):
        fail_inside()
    (name,) = names
    assert name not in Path("/proc/self/mountinfo").read_text()
    assert not Path("/run", name).exists()
    assert list(Path("/sys/fs/cgroup").rglob(name)) == []
