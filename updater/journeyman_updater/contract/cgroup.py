"""A cgroup of its own for each worker, below the one that systemd has delegated to the agent's unit.

So the unit's own cgroup holds the agent alone, and a worker can be measured, limited and told apart.  Nothing
depends on it: where it cannot be done, the worker stays in the cgroup of the agent.
"""

from __future__ import annotations

import contextlib
import os

UNIT = "dev.journeyman.agent.service"
PREFIX = "worker-"
MOUNT = "/sys/fs/cgroup"


def enter_worker_cgroup(worker_id: str) -> None:
    """Moves this process into `worker-<id>` below the agent's unit, if it runs in that unit.

    Whatever it starts from now on is born there.  Cgroups of workers that have ended are removed.
    """
    # Elsewhere than in our unit, as in somebody's login session, nothing has been delegated to us.
    unit = _unit_cgroup()
    if unit is None:
        return
    for other in _worker_cgroups(unit):
        with contextlib.suppress(OSError):
            # It fails while anything runs in it.
            os.rmdir(other)
    own = os.path.join(unit, f"{PREFIX}{worker_id}")
    with contextlib.suppress(OSError):
        os.makedirs(own, exist_ok=True)
        with open(os.path.join(own, "cgroup.procs"), "w", encoding="ascii") as procs:
            procs.write(str(os.getpid()))


def set_frozen(shim_pid: int, worker_id: str, *, frozen: bool, mount: str = MOUNT) -> bool:
    """Lets a worker stand still without its knowing, or go on: by the freezer of its cgroup of version 2.

    SIGSTOP can be seen: a shell with job control takes it for the end of what it runs, and goes on.  A frozen
    cgroup is seen by nobody in it, and only SIGKILL reaches what is frozen.  The worker's shim is in it, too,
    and so has to be thawed before it can tell of an end.  The interface is `cgroup.freeze` of the kernel's
    Documentation/admin-guide/cgroup-v2.rst.

    Args:
        shim_pid: of a shim that runs.
        worker_id: its worker.
        frozen: whether it stands still.
        mount: where version 2 is mounted; where it is not alone, systemd delegates none of it.

    Returns:
        Whether that could be asked for; the kernel does it within moments.  False where the worker shares its
        cgroup with others, whom it must not take along.
    """
    try:
        with open(f"/proc/{shim_pid}/cgroup", encoding="utf-8") as file:
            paths = [line[3:].strip() for line in file if line.startswith("0::")]
        if not paths or os.path.basename(paths[0]) != f"{PREFIX}{worker_id}":
            return False
        with open(f"{mount}{paths[0]}/cgroup.freeze", "w", encoding="ascii") as file:
            file.write("1" if frozen else "0")
    except OSError:
        return False
    return True


def _unit_cgroup() -> str | None:
    """The cgroup by which systemd tracks the unit: in its own hierarchy of version 1, or in version 2."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    found = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines}
    # A container of version 2 alone may see in its list, and not in its tree, what its host has of version 1.
    is_old = "name=systemd" in found and os.path.isdir(f"{MOUNT}/systemd")
    controller, mount = ("name=systemd", f"{MOUNT}/systemd") if is_old else ("", MOUNT)
    path = found.get(controller, "")
    before, unit, _ = path.partition(f"/{UNIT}")
    return f"{mount}/{before}{unit}" if unit else None


def _worker_cgroups(unit: str) -> list[str]:
    try:
        return [os.path.join(unit, name) for name in os.listdir(unit) if name.startswith(PREFIX)]
    except OSError:
        return []
