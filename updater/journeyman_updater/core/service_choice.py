"""Which service manager is to keep the agent of a host, and what that promises about boot and login."""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
SYSTEM_SERVICES = frozenset({"systemd", "launchd"})
"""Those that only root can install, and that run the agent as a user of its own."""
LAUNCHD_SERVICES = frozenset({"launchd", "launchd-gui", "launchd-user"})

OWN_USER = "journeyman"
"""Who runs the agent of a system install on Linux if nobody else is named; made if there is none."""

_SYSTEM_WIDE = {"darwin": "launchd", "linux": "systemd"}
_OWN = {"darwin": "launchd-gui", "linux": "systemd-user"}


@dataclass(frozen=True)
class HostManagers:
    """What there is on a host.

    Attributes:
        platform: `sys.platform`.
        is_root: whether we are root.
        has_systemd: whether systemd is process 1.
        has_user_manager: whether a systemd of this user runs.
        runit_folder: the folder that runsvdir watches, or an empty string.
    """

    platform: str
    is_root: bool
    has_systemd: bool = False
    has_user_manager: bool = False
    runit_folder: str = ""


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        service: one of the setting `service`.
        is_system: whether the agent gets a user of its own, and root keeps its programs.
        problem: why it cannot be, in one line, or an empty string.
        advice: what to do about it.
    """

    service: str
    is_system: bool
    problem: str = ""
    advice: str = ""


def choose(host: HostManagers, wanted: str = AUTO, *, system: bool | None = None) -> Choice:
    """Chooses, or says why what is wanted cannot be.

    Args:
        host: what there is.
        wanted: a service by name, or `auto`.
        system: whether a system install is wanted; None leaves it to who we are.
    """
    service = _automatic(host, system=system) if wanted == AUTO else wanted
    is_system = service in SYSTEM_SERVICES or (service not in _OWN.values() and bool(system))
    choice = Choice(service, is_system)
    if system is not None and system != is_system:
        word = "--system" if system else "--user"
        return _refuse(choice, f"{word} and --service {service} contradict each other", "Leave one out.")
    if is_system and not host.is_root:
        return _refuse(choice, "only root can make a system install", "Use sudo, or --user.")
    return _missing(choice, host)


def user_of_agent(platform: str, named: str, sudo_user: str) -> str:
    """Who runs the agent of a system install; an empty string if nobody has said so and nobody can be made.

    Args:
        platform: `sys.platform`.
        named: by `--run-as`, or an empty string.
        sudo_user: on whose behalf we are root, or an empty string.
    """
    if named or platform != "darwin":
        return named or OWN_USER
    # No user is made on a Mac: whoever sits there is the one whose models and network it shall have.
    return "" if sudo_user == "root" else sudo_user


def starts_when(service: str, *, lingers: bool = False) -> str:
    """When what is installed starts by itself: `boot`, `login`, `runsvdir`, `termux` or `never`."""
    if service == "systemd-user":
        return "boot" if lingers else "login"
    return {
        "systemd": "boot",
        "launchd": "boot",
        "launchd-gui": "login",
        "launchd-user": "login",
        "runit": "runsvdir",
        "termux": "termux",
    }.get(service, "never")


def _automatic(host: HostManagers, *, system: bool | None) -> str:
    own = not host.is_root if system is None else not system
    if host.platform == "darwin":
        return (_OWN if own else _SYSTEM_WIDE)["darwin"]
    if host.has_systemd and not own:
        return "systemd"
    if host.has_user_manager and own:
        return "systemd-user"
    if system and not host.runit_folder:
        return _SYSTEM_WIDE["linux"]
    return "runit" if host.runit_folder else "none"


def _missing(choice: Choice, host: HostManagers) -> Choice:
    service = choice.service
    anywhere = {"none", "runit", "termux"}
    if (service in LAUNCHD_SERVICES) != (host.platform == "darwin") and service not in anywhere:
        return _refuse(choice, f"there is no {service} on this host", "Leave --service out to see what is.")
    if service == "systemd" and not host.has_systemd:
        return _refuse(choice, "systemd does not run this host", "Use --service none, or runit.")
    if service == "systemd-user" and not host.has_user_manager:
        return _refuse(
            choice,
            "no systemd of this user runs",
            "Run `loginctl enable-linger` once, as this user or as root with its name.",
        )
    if service == "runit" and not host.runit_folder:
        return _refuse(
            choice,
            "no folder is known that runsvdir watches",
            "Name it with --service-folder, as /etc/service.",
        )
    return choice


def _refuse(choice: Choice, problem: str, advice: str) -> Choice:
    return Choice(choice.service, choice.is_system, problem, advice)
