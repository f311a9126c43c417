"""What is wrong with a registration, in words: the questions that a service manager answers of itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.service import choice
from journeyman_updater.adapters.service.installers import STOP_SECONDS, Target, installer_for
from journeyman_updater.adapters.service.launchctl import Launchctl
from journeyman_updater.core.service_choice import LAUNCHD_SERVICES
from journeyman_updater.core.service_files.launchd import AGENT, KINDS, UPDATER, are_same
from journeyman_updater.core.service_files.systemd import AGENT_UNIT
from journeyman_updater.ports import Clock


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong.

    Attributes:
        finding: one line.
        advice: what heals it, one line.
    """

    finding: str
    advice: str


def troubles_of(target: Target, clock: Clock) -> list[Trouble]:
    """All that the service manager shows to be wrong; whether an agent runs is for others to say.

    Raises:
        UpdaterError: it cannot be asked.
    """
    installer = installer_for(target, clock)
    found = []
    if not installer.is_installed():
        files = ", ".join(map(str, _strange(target, installer.files()) or installer.files()))
        found.append(
            Trouble(f"what is installed is not what belongs there: {files}", "Run `journeyman install`.")
        )
    if target.service.startswith("systemd"):
        found += _of_systemd(target, clock)
    elif target.service in LAUNCHD_SERVICES:
        found += _of_launchd(target)
    return found


def _strange(target: Target, files: Mapping[Path, bytes]) -> list[Path]:
    """The files that are missing or say something else."""
    is_same = are_same if target.service in LAUNCHD_SERVICES else bytes.__eq__
    return [path for path, text in files.items() if not (path.is_file() and is_same(path.read_bytes(), text))]


def _of_systemd(target: Target, clock: Clock) -> list[Trouble]:
    is_user = target.service == "systemd-user"
    manager = (choice.systemd_user if is_user else choice.systemd)(clock, stop_seconds=STOP_SECONDS)
    systemctl = "systemctl --user" if is_user else "systemctl"
    facts, found = manager.facts(), []
    if facts.load_state == "masked":
        found.append(Trouble("the unit is masked", f"Run `{systemctl} unmask {AGENT_UNIT}`."))
    elif facts.unit_file_state == "disabled":
        found.append(
            Trouble(
                "the unit is disabled: nothing starts it", f"Run `{systemctl} enable --now {AGENT_UNIT}`."
            )
        )
    if facts.needs_reload:
        found.append(
            Trouble("systemd has an older unit in memory than on disk", f"Run `{systemctl} daemon-reload`.")
        )
    if facts.result == "start-limit-hit":
        found.append(
            Trouble(
                "systemd has given up starting it (start limit)",
                f"Run `{systemctl} reset-failed {AGENT_UNIT}` and `{systemctl} start {AGENT_UNIT}`.",
            )
        )
    if not manager.lingers():
        found.append(
            Trouble(
                "it starts at login only, and ends at logout: you do not linger",
                "Run `loginctl enable-linger`.",
            )
        )
    return found


def _of_launchd(target: Target) -> list[Trouble]:
    uid, found = os.getuid(), []
    domains = {"system": "system", "gui": f"gui/{uid}", "user": f"user/{uid}"}
    home = domains.pop(KINDS[target.service])
    for label in (AGENT, UPDATER):
        tool = Launchctl(
            SubprocessCommandRunner(), label, (home, *domains.values()), program=target.launchctl
        )
        look = tool.look()
        if tool.is_disabled(home):
            found.append(Trouble(f"{home}/{label} is disabled", f"Run `launchctl enable {home}/{label}`."))
        found += [
            Trouble(
                f"{label} is registered in {each.domain}, and belongs in {home}",
                f"Run `launchctl bootout {each.domain}/{label}`, then `journeyman install`.",
            )
            for each in look.found
            if each.domain != home
        ]
        if look.is_absent:
            found.append(
                Trouble(f"{label} is not registered", "Run `journeyman install`, which registers it.")
            )
    return found
