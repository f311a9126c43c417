"""Service folders for runit.  Each `run` execs what it starts, so that runsv's signals reach it.

Those of Termux, which keep the agent in a PRoot guest, are files of their own: `proot/install.sh`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from journeyman_updater.contract.control_socket import SHARED_FOLDER

SH = "#!/bin/sh\n# Written by Journeyman and replaced by it.\n"
BAD_CONFIG = 78
AGENT_SCRIPTS = ("run", "finish")
"""What starts the agent; the log is a service of its own, which outlives restarts."""


@dataclass(frozen=True)
class RunitSettings:
    """What differs from host to host.

    Attributes:
        root: the state root, as an absolute path.
        guard: the launcher of the guard.
        updater: the launcher of the updater.
        user: who runs the agent, or an empty string for whoever runs runsvdir.
        path: PATH of both services.
        log_folder: where svlogd keeps the agent's log.
        update_every_seconds: between two runs of the updater.
        wake_up_seconds: between two looks whether a heartbeat has brought an update request.
    """

    root: str
    guard: str
    updater: str
    user: str
    path: str
    log_folder: str
    update_every_seconds: int = 300
    wake_up_seconds: int = 5


def render_runit(settings: RunitSettings) -> dict[str, dict[str, str]]:
    """Two services by name, each with its files by path."""
    return {
        "journeyman": {
            "run": _run(settings),
            "finish": SH + _STAY_DOWN,
            "log/run": _log(settings.log_folder),
        },
        "journeyman-updater": {"run": _updater(settings)},
    }


def _run(settings: RunitSettings) -> str:
    root = settings.root
    user, folder = shlex.quote(settings.user), SHARED_FOLDER
    become = f"chpst -u {user} " if settings.user else ""
    # Nobody but root may make names in /run, so that nothing can be there but what this has made.
    socket = f"mkdir -p {folder} && chown {user}: {folder} && chmod 0750 {folder}\n" if settings.user else ""
    command = shlex.join((settings.guard, "--root", root, "--", "run", "--state-root", root))
    return f"""\
{SH}exec 2>&1
export PATH={shlex.quote(settings.path)}
{socket}exec {become}{command}
"""


# runsv reads its orders after it has started the next run, so the script waits until this one was read: byte
# 17 of the status is what is wanted.
_STAY_DOWN = f"""\
# {BAD_CONFIG}: a setting is wrong, and a further start would not mend it.  `sv up` once it is mended.
[ "$1" = {BAD_CONFIG} ] || exit 0
printf d > supervise/control
looks=50
while [ "$looks" -gt 0 ] && [ "$(tail -c 3 supervise/status | head -c 1)" != d ]; do
    sleep 0.1
    looks=$((looks - 1))
done
"""


def _log(folder: str) -> str:
    return f"""\
{SH}mkdir -p {shlex.quote(folder)}
exec svlogd -tt {shlex.quote(folder)}
"""


def _updater(settings: RunitSettings) -> str:
    wanted = shlex.quote(f"{settings.root}/run/update-wanted")
    looks = max(1, settings.update_every_seconds // settings.wake_up_seconds)
    command = shlex.join((settings.updater, "--root", settings.root))
    return f"""\
{SH}# A service of its own, so that it outlives the agent's restart.  runsv starts it again after a run.
exec 2>&1
export PATH={shlex.quote(settings.path)}
: > last-run
{command}
looks={looks}
while [ "$looks" -gt 0 ] && ! [ {wanted} -nt last-run ]; do
    sleep {settings.wake_up_seconds}
    looks=$((looks - 1))
done
"""
