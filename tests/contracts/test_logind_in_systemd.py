"""Real logind of a real systemd, whose kernel is a file: a container cannot sleep, and must not.

What logind reads and systemd-sleep writes is /sys/power/state; here it is a file of the container's own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.systemd_container import INSIDE, SystemdContainer, booted
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
STATES = "freeze mem disk"
KERNEL = f"""
mount -o remount,rw /sys && mkdir -p /sys/power /run/power &&
echo '{STATES}' > /run/power/state && echo '[s2idle] deep' > /run/power/mem_sleep &&
mount --bind /run/power /sys/power
"""
MANAGER = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


@pytest.fixture(scope="module")
def container() -> Iterator[SystemdContainer]:
    """A container whose logind believes that it can sleep."""
    with booted() as made:
        made.run("sh", "-c", KERNEL)
        made.run("systemctl", "start", "systemd-logind.service")
        yield made


def test_logind_waits_for_our_good_bye(container: SystemdContainer) -> None:
    """The kernel is told after we, who are no administrator, have let go; the next sleep waits, too."""
    notes = container.tree / "srv/notes"
    container.run("sh", "-c", "touch /srv/notes && chown nobody /srv/notes")
    packages = ":".join(str(INSIDE / room) for room in ("agent", "updater", "."))
    container.run(
        *("systemd-run", "--quiet", "--unit=listener", "--uid=nobody", f"--setenv=PYTHONPATH={packages}"),
        *("--setenv=PYTHONDONTWRITEBYTECODE=1", f"--working-directory={INSIDE}", sys.executable),
        *("-m", "tests.support.says_good_bye", "/srv/notes", "/run/power/state"),
    )
    for times in (1, 2):
        eventually(
            lambda: container.run("systemd-inhibit", "--list").count("Journeyman") == 2, within_seconds=60
        )
        container.run("sh", "-c", f"echo '{STATES}' > /run/power/state")
        container.run("busctl", "call", *MANAGER, "Suspend", "b", "false")
        expected = "begins disk\n" + "sleep disk\nback mem\n" * times
        eventually(partial(_is, notes, expected), within_seconds=60)
    container.run("systemctl", "stop", "listener")


def _is(path: Path, text: str) -> bool:
    return path.read_text() == text
