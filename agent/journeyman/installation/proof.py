"""The end of each run: the agent that the service manager keeps is READY, and its heartbeat shows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

import journeyman_updater.installation as updater
from journeyman import __version__
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.system_clock import SystemClock
from journeyman.client import NODES
from journeyman.control import call
from journeyman.errors import ControlPlaneError, HostError, JourneymanError
from journeyman.installation.model import Report, Request, Say
from journeyman.model.fleet_node import FleetNode
from journeyman.settings import load_settings

POLL_SECONDS = 0.25
# How its lines begin, see `journeyman_updater/cli.py`.
_OF_THE_UPDATER = ("journeyman-updater: ", '{"ending": ')


def prove(request: Request, say: Say, changes: list[str], began: datetime) -> Report:
    """Waits for the proof; the deadline holds for each of its two parts."""
    target = request.target
    if (handed_over := _handed_over(target, changes)) is not None:
        return handed_over
    say("waiting until the agent is READY")
    status = asyncio.run(_until_ready(request))
    node = str(status["nodeName"])
    say(f"waiting for the heartbeat of {node} on the control plane")
    asyncio.run(_until_beating(request, node, began if changes else None))
    installer = updater.installer_for(target, updater.clock())
    return Report(node, str(status["version"]), target.service, installer.starts(), changes)


def _handed_over(target: updater.Target, changes: list[str]) -> Report | None:
    """The report where the service is made elsewhere, and has not been yet; otherwise None."""
    step, installer = updater.next_step(target), updater.installer_for(target, updater.clock())
    if not step or installer.running() is not None:
        return None
    version = updater.active_version(target.root) or ""
    return Report("", version, target.service, installer.starts(), changes, step)


async def _until_ready(request: Request) -> dict[str, object]:
    """The agent that answers on the control socket is the one that the manager keeps."""
    clock, root = SystemClock(), request.target.root
    installer = updater.installer_for(request.target, updater.clock())
    deadline = clock.monotonic() + request.deadline_seconds
    said = ""
    while clock.monotonic() < deadline:
        try:
            status = call(root, "status", timeout_seconds=5)
            running = installer.running()
            if running is not None and running.pid == status["pid"]:
                return status
            said = f"{request.target.service} keeps another agent than the one that answers"
        except JourneymanError as error:
            said = error.message
        except updater.UpdaterError as error:
            said = error.message
        await clock.sleep(POLL_SECONDS)
    why = _last_words(request.target) or said
    raise HostError(
        f"the agent was not READY within {request.deadline_seconds:g} s: {why}",
        "Try again with a longer --deadline, or mend what that line says.",
    )


def _last_words(target: updater.Target) -> str:
    """The last that the agent said, where its log lies in the state root."""
    for name in ("agent.log", "current"):
        with suppress(OSError):
            return last_words((target.root.logs / name).read_text(errors="replace"))
    return ""


def last_words(log: str) -> str:
    """The last line of a log that is not the updater's; empty if there is none.

    Where there is no service manager the updater writes to the agent's log, one line a run, and so the line
    after that by which an agent ends.
    """
    said = (line.strip() for line in reversed(log.splitlines()) if not line.startswith(_OF_THE_UPDATER))
    return next(filter(None, said), "")[-500:]


async def _until_beating(request: Request, node_name: str, began: datetime | None) -> None:
    """Until the FleetNode shows a heartbeat that is fresh, and newer than what this run has started."""
    clock = SystemClock()
    # What was installed: its own copy of the token is what has to be good.
    settings = load_settings({"state_root": request.target.root.path}, {}).settings
    plane = HttpControlPlane(settings, clock, version=__version__)
    deadline = clock.monotonic() + request.deadline_seconds
    said = "no heartbeat has come"
    try:
        while clock.monotonic() < deadline:
            try:
                node = FleetNode.from_wire(await plane.get(NODES.named(node_name)))
                if _is_beating(node, clock.now() + timedelta(seconds=plane.clock_offset_seconds()), began):
                    return
            except ControlPlaneError as error:
                said = error.message
            await clock.sleep(POLL_SECONDS)
    finally:
        await plane.aclose()
    raise HostError(
        f"the control plane shows no heartbeat of {node_name} within {request.deadline_seconds:g} s: {said}",
        "Mend what that says, and install again.",
    )


def _is_beating(node: FleetNode, now: datetime, began: datetime | None) -> bool:
    beat = node.status.last_heartbeat_time
    # The wire has whole seconds.
    is_new = began is None or (beat is not None and beat >= began - timedelta(seconds=1))
    return is_new and not node.heartbeat_is_stale(now)
