"""Units for systemd 245 and later, for the system manager and for a user's own.

The agent's unit leaves alone what outlives the agent: `KillMode=process` ends the agent and nothing else, and
`Delegate=yes` lets each worker have a cgroup of its own below the unit's.  What would break workers is left
out on purpose:

    PrivateTmp                     is taken away at a stop, under the feet of workers that go on
    PrivateDevices, ProtectClock   hide /dev/nvidia*: the latter sets a device policy
    ProtectKernelLogs, ProtectKernelTunables, ProtectProc   cover parts of /proc, and then bubblewrap may not
                                   mount a new one
    ProtectHostname, RestrictNamespaces   forbid what bubblewrap does
    MemoryDenyWriteExecute         forbids the just-in-time compilers of CUDA and of Python libraries
    ProtectControlGroups           would take back what Delegate gives
"""

from __future__ import annotations

from dataclasses import dataclass

from journeyman_updater.contract.control_socket import SHARED_FOLDER

AGENT = "dev.journeyman.agent"
UPDATER = "dev.journeyman.updater"
AGENT_UNIT = f"{AGENT}.service"
HEADER = "# Written by Journeyman and replaced by it.  For changes of your own: systemctl edit {unit}\n"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class SystemdSettings:
    """What differs from host to host.

    Attributes:
        root: the state root, an absolute path.
        guard: the launcher of the guard.
        updater: the launcher of the updater; it takes `--root ROOT`.
        user: who runs the agent, or an empty string for the units of a user's own manager.
        path: PATH of both services.
        nvidia_modprobe: the absolute path of nvidia-modprobe if this host has one, or an empty string.
        watchdog_seconds: an agent that has been silent for so long is killed and started again.
        start_seconds: from the start to READY.
        stop_seconds: how long the agent may take to stop in good order.
        update_every_seconds: between two runs of the updater.
        update_limit_seconds: how long one run of the updater may take.
    """

    root: str
    guard: str
    updater: str
    user: str = ""
    path: str = SYSTEM_PATH
    nvidia_modprobe: str = ""
    watchdog_seconds: int = 60
    start_seconds: int = 60
    stop_seconds: int = 30
    update_every_seconds: int = 300
    update_limit_seconds: int = 7200


def render_systemd(settings: SystemdSettings) -> dict[str, str]:
    """The units by file name."""
    units = {
        AGENT_UNIT: _agent(settings),
        f"{UPDATER}.service": _updater(settings),
        f"{UPDATER}.timer": _timer(settings),
        f"{UPDATER}.path": _wake_up(settings),
    }
    return {name: HEADER.format(unit=_edit(settings, name)) + text for name, text in units.items()}


def _edit(settings: SystemdSettings, unit: str) -> str:
    return unit if settings.user else f"--user {unit}"


def _agent(settings: SystemdSettings) -> str:
    root = settings.root
    start = _command(settings.guard, "--root", root, "--", "run", "--state-root", root)
    target = "multi-user.target" if settings.user else "default.target"
    # The plus sign: as root, whoever runs the agent.  Without these devices CUDA asks a setuid program for
    # them, and NoNewPrivileges takes its power away.
    modprobe = (
        f"ExecStartPre=-+{_command(settings.nvidia_modprobe, '-c', '0', '-u')}\n"
        if settings.user and settings.nvidia_modprobe
        else ""
    )
    return f"""\
[Unit]
Description=Journeyman agent
{"After=network.target" + chr(10) if settings.user else ""}\
# The guard counts the starts of a release on trial; a limit here would refuse its way back.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
{modprobe}ExecStart={start}
{_identity(settings)}\
Environment={_quoted("PATH=" + settings.path)}
TimeoutStartSec={settings.start_seconds}
TimeoutStopSec={settings.stop_seconds}
WatchdogSec={settings.watchdog_seconds}
Restart=always
RestartSec=1
# 75: the agent asks for a restart.  78: a setting is wrong, and a further start would not mend it.
SuccessExitStatus=75
RestartForceExitStatus=75
RestartPreventExitStatus=78
# Workers outlive the agent: they are signalled by nobody but the agent, and one that runs out of memory
# takes nothing else down.
KillMode=process
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=65536
{_hardening(settings) if settings.user else ""}
[Install]
WantedBy={target}
"""


def _identity(settings: SystemdSettings) -> str:
    if not settings.user:
        return ""
    # The socket lies there, for the agent's group.  It is kept over a stop: a worker's view of /run has the
    # folder that was there when its agent started.
    return (
        f"User={settings.user}\nRuntimeDirectory={SHARED_FOLDER.removeprefix('/run/')}\nRuntimeDirectoryMode=0750\n"
        "RuntimeDirectoryPreserve=yes\n"
    )


def _hardening(settings: SystemdSettings) -> str:
    root = settings.root
    programs = " ".join(_quoted(f"{root}/{name}") for name in ("versions", "updater", "keys"))
    return f"""\
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths={_quoted(root)}
ReadOnlyPaths={programs}
ProtectHome=read-only
ProtectKernelModules=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""


def _updater(settings: SystemdSettings) -> str:
    return f"""\
[Unit]
Description=Journeyman updater
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={_command(settings.updater, "--root", settings.root)}
Environment={_quoted("PATH=" + settings.path)}
TimeoutStartSec={settings.update_limit_seconds}
Nice=5
"""


def _timer(settings: SystemdSettings) -> str:
    # A boot in the middle of a trial must be judged soon; a user's manager counts from its own start.
    first = "OnBootSec=20" if settings.user else "OnStartupSec=20"
    return f"""\
[Unit]
Description=Journeyman updater, every {settings.update_every_seconds} seconds

[Timer]
{first}
OnUnitInactiveSec={settings.update_every_seconds}
RandomizedDelaySec={max(1, settings.update_every_seconds // 10)}

[Install]
WantedBy=timers.target
"""


def _wake_up(settings: SystemdSettings) -> str:
    return f"""\
[Unit]
Description=Journeyman updater, when a heartbeat brings an update request

[Path]
PathChanged={_escaped(settings.root)}/run/update-wanted

[Install]
WantedBy=paths.target
"""


def _command(program: str, *arguments: str) -> str:
    """One line of ExecStart, systemd.service(5).  Variables are replaced in arguments alone."""
    return " ".join((_quoted(program), *(_quoted(word.replace("$", "$$")) for word in arguments)))


def _quoted(word: str) -> str:
    """One word, quoted where it must be; `systemd.syntax(7)`, quoting."""
    word = _escaped(word)
    if word and not set(word) & set(" \t\"';"):
        return word
    inner = word.replace('"', '\\"')
    return f'"{inner}"'


def _escaped(text: str) -> str:
    """Specifiers begin with a percent sign, escapes with a backslash."""
    return text.replace("\\", "\\\\").replace("%", "%%")
