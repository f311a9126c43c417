"""The freezer of a worker in the unit of a real systemd, on a host with cgroups of version 2 alone."""

from __future__ import annotations

import sys

import pytest

from tests.support.systemd_container import INSIDE, booted

pytestmark = [pytest.mark.slow, pytest.mark.full]


def test_the_agents_user_may_freeze_what_systemd_has_delegated() -> None:
    """Without root's rights, a worker of our unit stands still and goes on, and its shell has not seen it."""
    with booted(version_2=True) as container:
        container.run("sh", "-c", "install -d --owner=nobody /srv/desk")
        packages = ":".join(str(INSIDE / room) for room in ("agent", "updater", "."))
        container.run(
            *("systemd-run", "--quiet", "--wait", "--pipe", "--unit=dev.journeyman.agent", "--uid=nobody"),
            *("--property=Delegate=yes", "--property=KillMode=process", f"--working-directory={INSIDE}"),
            *(f"--setenv=PYTHONPATH={packages}", "--setenv=PYTHONDONTWRITEBYTECODE=1"),
            *(sys.executable, "-m", "tests.support.job_control", "/srv/desk"),
        )
