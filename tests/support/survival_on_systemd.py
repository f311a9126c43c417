"""`survive` inside of a container with real systemd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.survival import Survived
from tests.support.systemd_container import SystemdContainer, booted

USER = "ada"


@contextmanager
def container_for_survival() -> Iterator[SystemdContainer]:
    """Real systemd, with a user who has a manager of her own without a login."""
    with booted() as made:
        made.run("useradd", "--create-home", USER)
        made.run("loginctl", "enable-linger", USER)
        made.run("mkdir", "--mode=755", "/srv/streams")
        yield made


def survive_inside(container: SystemdContainer, service: str) -> Survived:
    """As root for `systemd`, as that user for `systemd-user`."""
    user = USER if service == "systemd-user" else None
    folder = f"/srv/streams/{service}"
    container.run("install", "--directory", f"--owner={user or 'root'}", folder)
    printed = container.python(
        "-m", "tests.support.survival", service, folder, user=user, HOME=f"/home/{user}" if user else "/root"
    )
    return Survived(**json.loads(printed.splitlines()[-1]))
