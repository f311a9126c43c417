"""The property lists of the agent's and the updater's jobs: what they say, and what is checked about them.

Keys and their meaning are those of launchd.plist(5).  Nothing here touches a file; whoever installs writes
the bytes, and `adapters/service/launchd.py` registers them.
"""

from __future__ import annotations

import hashlib
import plistlib
from dataclasses import dataclass, field
from typing import Any, Literal

from journeyman_updater.contract import UPDATER_JOB

AGENT = "dev.journeyman.agent"
UPDATER = "dev.journeyman.updater"

UNIT_VARIABLE = "JOURNEYMAN_UNIT"
"""A digest of the rest of the list, in its environment, so that `launchctl print` shows which is loaded.

Each registration adds a dot and a mark of its own, see `marked`."""

# Services get /usr/bin:/bin:/usr/sbin:/sbin; Homebrew lives elsewhere, by processor.
PATH = "/opt/homebrew/bin:/opt/homebrew/sbin:/usr/local/bin:/usr/local/sbin:/usr/bin:/bin:/usr/sbin:/sbin"

KINDS: dict[str, Literal["system", "gui", "user"]] = {
    "launchd": "system",
    "launchd-gui": "gui",
    "launchd-user": "user",
}
"""The kinds of domain by the name of the setting `service`."""

SESSION_TYPES = {"gui": "Aqua", "user": "Background"}

# launchd's default of 256 is used up by one busy proxy.
_OPEN_FILES = 8192

_TEXT, _FLAG, _NUMBER, _LIST, _TABLE = (str,), (bool,), (int,), (list,), (dict,)
DOCUMENTED: dict[str, tuple[type, ...]] = {
    "AbandonProcessGroup": _FLAG, "AssociatedBundleIdentifiers": (str, list), "BundleProgram": _TEXT,
    "Debug": _FLAG, "Disabled": _FLAG, "EnableGlobbing": _FLAG, "EnablePressuredExit": _FLAG,
    "EnableTransactions": _FLAG, "EnvironmentVariables": _TABLE, "ExitTimeOut": _NUMBER, "GroupName": _TEXT,
    "HardResourceLimits": _TABLE, "InitGroups": _FLAG, "KeepAlive": (bool, dict), "Label": _TEXT,
    "LaunchEvents": _TABLE, "LaunchOnlyOnce": _FLAG, "LegacyTimers": _FLAG, "LimitLoadFromHardware": _TABLE,
    "LimitLoadFromHosts": _LIST, "LimitLoadToHardware": _TABLE, "LimitLoadToHosts": _LIST,
    "LimitLoadToSessionType": (str, list), "LowPriorityBackgroundIO": _FLAG, "LowPriorityIO": _FLAG,
    "MachServices": _TABLE, "MaterializeDatalessFiles": _FLAG, "Nice": _NUMBER, "ProcessType": _TEXT,
    "Program": _TEXT, "ProgramArguments": _LIST, "QueueDirectories": _LIST, "RootDirectory": _TEXT,
    "RunAtLoad": _FLAG, "SessionCreate": _FLAG, "Sockets": _TABLE, "SoftResourceLimits": _TABLE,
    "StandardErrorPath": _TEXT, "StandardInPath": _TEXT, "StandardOutPath": _TEXT,
    "StartCalendarInterval": (dict, list), "StartInterval": _NUMBER, "StartOnMount": _FLAG,
    "ThrottleInterval": _NUMBER, "TimeOut": _NUMBER, "Umask": (int, str), "UserName": _TEXT,
    "WaitForDebugger": _FLAG, "WatchPaths": _LIST, "WorkingDirectory": _TEXT, "inetdCompatibility": _TABLE,
}  # fmt: skip
"""Each key of launchd.plist(5) with the types of its value.  launchd ignores a misspelled key in silence."""

_PATHS = ("Program", "StandardErrorPath", "StandardInPath", "StandardOutPath", "WorkingDirectory")


@dataclass(frozen=True)
class LaunchdSettings:
    """What the lists are rendered from.  Paths are absolute; spaces in them are normal.

    Attributes:
        kind: `system` starts at boot, `gui` at login to the desktop, `user` with the first login of any sort.
        guard: the launcher of the guard.
        updater: the launcher of the pinned updater.
        root: the state root.
        log_folder: exists when the jobs are registered; launchd refuses them otherwise, without a reason.
        user: whom the agent runs as; for `system` only, where the updater is root.
        uid: whose domain it is; for `gui` and `user` only.
        stop_seconds: how long the agent may take to stop before launchd kills it.
        throttle_seconds: the least time between two starts.
        update_every_seconds: between two runs of the updater that nothing else has asked for.
        environment: further variables; no secrets, as everybody may print them.
        agent_label, updater_label: the names of the jobs.
    """

    kind: Literal["system", "gui", "user"]
    guard: str
    updater: str
    root: str
    log_folder: str
    user: str | None = None
    uid: int | None = None
    stop_seconds: int = 30
    throttle_seconds: int = 10
    update_every_seconds: int = 300
    environment: dict[str, str] = field(default_factory=dict, hash=False)
    agent_label: str = AGENT
    updater_label: str = UPDATER


def render_agent(settings: LaunchdSettings) -> bytes:
    """The list of the job that keeps the guard, and so the agent, running."""
    arguments = [settings.guard, "--root", settings.root, "--", "run", "--state-root", settings.root]
    environment = settings.environment
    if settings.kind in SESSION_TYPES:
        # In the system domain only root may start a job, and the agent is not root.
        updater = f"{settings.kind}/{settings.uid}/{settings.updater_label}"
        environment = {**environment, UPDATER_JOB: updater}
    body = {
        **_common(settings, settings.agent_label, arguments, "agent.log", environment),
        # On any exit: 75 asks for it, and the guard owns the limit of a trial's starts.
        "KeepAlive": True,
        "SoftResourceLimits": {"NumberOfFiles": _OPEN_FILES},
    }
    if settings.kind == "system" and settings.user:
        body["UserName"] = settings.user
    return _sealed(body)


def render_updater(settings: LaunchdSettings) -> bytes:
    """The list of the one-shot updater: at boot or login, by interval, and when it is woken up.

    Both the watched path and the interval may miss events, which is why each backs the other up.
    """
    arguments = [settings.updater, "--root", settings.root]
    body = {
        **_common(settings, settings.updater_label, arguments, "updater.log", settings.environment),
        "StartInterval": settings.update_every_seconds,
        "WatchPaths": [f"{settings.root}/run/update-wanted"],
    }
    return _sealed(body)


def unit_of(plist: dict[str, Any]) -> str | None:
    """Which rendering a property list is; None if it is none of ours."""
    environment = plist.get("EnvironmentVariables")
    found = environment.get(UNIT_VARIABLE) if isinstance(environment, dict) else None
    return found if isinstance(found, str) else None


def are_same(one: bytes, other: bytes) -> bool:
    """Whether two lists are one rendering, whatever marks their registrations have added."""
    return one == other or _rendering(one) == _rendering(other) is not None


def _rendering(text: bytes) -> str | None:
    try:
        unit = unit_of(plistlib.loads(text))
    except (ValueError, plistlib.InvalidFileException):
        return None
    return unit.partition(".")[0] if unit else None


def marked(text: bytes, mark: str) -> bytes:
    """The list of one more registration, which can be told from all others of the same list.

    Args:
        text: a property list; one that is not ours comes back as it is.
        mark: used once.
    """
    plist = plistlib.loads(text)
    unit = unit_of(plist)
    if unit is None:
        return text
    environment = {**plist["EnvironmentVariables"], UNIT_VARIABLE: f"{unit.partition('.')[0]}.{mark}"}
    return plistlib.dumps({**plist, "EnvironmentVariables": environment})


def problems(plist: dict[str, Any]) -> list[str]:
    """What launchd would ignore or refuse without a word; to be looked at before anything is registered.

    Returns:
        One line each; an empty list if there is nothing to say.
    """
    found = []
    for key, value in plist.items():
        types = DOCUMENTED.get(key)
        if types is None:
            found.append(f"{key} is no key of launchd.plist(5)")
        elif not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            found.append(f"{key} has a value of the wrong type")
    found += [f"{key} is missing" for key in ("Label", "ProgramArguments") if not plist.get(key)]
    paths = [(key, plist[key]) for key in _PATHS if isinstance(plist.get(key), str)]
    paths += [("ProgramArguments", word) for word in (plist.get("ProgramArguments") or [])[:1]]
    found += [f"{key} is no absolute path" for key, path in paths if not str(path).startswith("/")]
    if plist.get("AbandonProcessGroup"):
        found.append(
            "AbandonProcessGroup would leave processes of a dead agent behind; workers have own groups"
        )
    if plist.get("ExitTimeOut") == 0:
        found.append("ExitTimeOut of 0 waits for ever")
    return found


def _common(
    settings: LaunchdSettings,
    label: str,
    arguments: list[str],
    log_name: str,
    environment: dict[str, str],
) -> dict[str, Any]:
    log = f"{settings.log_folder}/{log_name}"
    body: dict[str, Any] = {
        "Label": label,
        "ProgramArguments": arguments,
        "EnvironmentVariables": {"PATH": PATH, **environment},
        "WorkingDirectory": settings.root,
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "RunAtLoad": True,
        "ThrottleInterval": settings.throttle_seconds,
        "ExitTimeOut": settings.stop_seconds,
        # Background would throttle processor and disk, and the workers with us.
        "ProcessType": "Standard",
    }
    if settings.kind in SESSION_TYPES:
        body["LimitLoadToSessionType"] = SESSION_TYPES[settings.kind]
    return body


def _sealed(body: dict[str, Any]) -> bytes:
    unit = hashlib.sha256(plistlib.dumps(body)).hexdigest()[:12]
    environment = {**body["EnvironmentVariables"], UNIT_VARIABLE: unit}
    return plistlib.dumps({**body, "EnvironmentVariables": environment})
