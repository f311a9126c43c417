"""Looks at a host before an installation: which service managers and which other agents there are."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.service.systemd import user_environment
from journeyman_updater.core.service_choice import HostManagers
from journeyman_updater.ports import CommandRunner

RUNIT_FOLDERS = ("/etc/service", "/var/service", "/service")
OTHER_UNIT = "llmkube-foreman-agent.service"
_OTHER_JOB = re.compile(r"^\s*(?:\d+|-)\s+\S+\s+(com\.llmkube\.\S+)\s*$", re.MULTILINE)
_CALL_SECONDS = 15.0


def managers_here(runit_folder: str = "") -> HostManagers:
    """What there is on this host.

    Args:
        runit_folder: the folder that runsvdir watches, if a person has named it.
    """
    folders = [folder for folder in RUNIT_FOLDERS if Path(folder).is_dir()]
    own = Path(user_environment(os.getuid())["XDG_RUNTIME_DIR"], "systemd", "private")
    return HostManagers(
        platform=sys.platform,
        is_root=os.geteuid() == 0,
        has_systemd=Path("/run/systemd/system").is_dir(),
        has_user_manager=own.exists(),
        runit_folder=runit_folder or next(iter(folders), ""),
    )


def other_agents(service: str, launchctl: str, domains: Sequence[str]) -> list[str]:
    """The agents of LLMKube that are registered here; two agents of one host would fight over its work.

    Args:
        service: one of the setting `service`.
        launchctl: the path of launchd's tool.
        domains: of launchd, where to look.
    """
    if service.startswith("launchd"):
        return _launchd_jobs(SubprocessCommandRunner(), launchctl, domains)
    if service == "systemd":
        return _units(SubprocessCommandRunner())
    if service == "systemd-user":
        user = _units(SubprocessCommandRunner(user_environment(os.getuid())), "--user")
        return user + _units(SubprocessCommandRunner())
    return []


def _launchd_jobs(runner: CommandRunner, launchctl: str, domains: Sequence[str]) -> list[str]:
    said = (
        runner.run(launchctl, "print", domain, timeout_seconds=_CALL_SECONDS).stdout for domain in domains
    )
    return sorted({label for text in said for label in _OTHER_JOB.findall(text)})


def _units(runner: CommandRunner, *scope: str) -> list[str]:
    shown = runner.run(
        "systemctl",
        *scope,
        "show",
        OTHER_UNIT,
        "--property=ActiveState,UnitFileState",
        timeout_seconds=_CALL_SECONDS,
    )
    is_there = any(
        line in {"ActiveState=active", "ActiveState=activating"} for line in shown.stdout.splitlines()
    )
    return [OTHER_UNIT] if is_there or "UnitFileState=enabled" in shown.stdout.splitlines() else []
