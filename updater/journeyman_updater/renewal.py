"""Composes how the updater that runs now becomes that of the active release."""

from __future__ import annotations

import contextlib
from pathlib import Path

from journeyman_updater.adapters.exec_check import SubprocessExecCheck
from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.adapters.host_facts import recorded_python, service_user
from journeyman_updater.adapters.self_check import SubprocessSelfCheck
from journeyman_updater.contract import StateRoot
from journeyman_updater.errors import UpdaterError
from journeyman_updater.ports import SelfCheck
from journeyman_updater.settings import Settings
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.renew import Myself, renew


def renew_if_due(tools: Tools, settings: Settings) -> None:
    """Lets updater, guard and parent follow the active release; that they cannot is no failure of a run.

    Why is in the journal, where it could be written; the next run tries again.
    """
    me = Myself(_copy_we_run_from(tools.root), recorded_python())
    with contextlib.suppress(UpdaterError, OSError):
        renew(tools, me, compose_check(tools, settings), FlockLocks())


def compose_check(tools: Tools, settings: Settings) -> SelfCheck:
    """Runs new programs as the service, and new updaters as this one."""
    seconds = settings.exec_check_seconds
    user = service_user(tools.root.run)
    return SubprocessSelfCheck(
        service=SubprocessExecCheck(tools.clock, deadline_seconds=seconds, user=user),
        own=SubprocessExecCheck(tools.clock, deadline_seconds=seconds),
    )


def _copy_we_run_from(root: StateRoot) -> str | None:
    here, copies = Path(__file__).resolve(), root.updater.resolve()
    return here.relative_to(copies).parts[0] if here.is_relative_to(copies) else None
