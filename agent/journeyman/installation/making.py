"""Makes an installation, or mends one; programs, units and users are the updater's."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime

import journeyman_updater.installation as updater
from journeyman import __version__
from journeyman.control import call
from journeyman.errors import HostError
from journeyman.installation.checks import KEPT, check
from journeyman.installation.model import Report, Request, Say, explained
from journeyman.installation.proof import POLL_SECONDS, prove
from journeyman.settings import Settings
from journeyman_updater.contract import StateRoot, write_durably

TOKEN, CA = "agent/token", "agent/ca.crt"
IN_ROOT = (
    "config.toml",
    "updater.json",
    "install.json",
    "state.json",
    "journal.jsonl",
    "guard",
    "update-once",
    "run-guard",
    "versions/",
    "units/",
    "updater/",
    "keys/",
    "downloads/",
    "outbox/",
    "workers/",
    "models/",
    "agent/",
    "run/",
    "logs/",
)


def plan(request: Request) -> tuple[list[str], list[str]]:
    """The files and the commands of an installation, for people; touches nothing."""
    root = request.target.root.path
    settings = request.settings
    copies = [name for name, source in ((TOKEN, settings.token_file), (CA, settings.ca_file)) if source]
    installer = updater.installer_for(request.target, updater.clock())
    files = [str(root / name) + ("/" if name.endswith("/") else "") for name in (*copies, *IN_ROOT)]
    commands = [*updater.user_commands(request.target), *installer.commands()]
    return files + [str(path) for path in installer.files()], commands


def install(request: Request, say: Say) -> Report:
    """Installs, starts, and waits until the agent is READY and its heartbeat shows on the control plane.

    Args:
        request: what and where.
        say: is told what is being done, a line each.

    Raises:
        JourneymanError: it cannot be, or has failed; what this run has made is gone again, but for a run that
            mends an earlier installation.
    """
    check(request)
    with explained(request.target.root):
        made = updater.read_made(request.target.root)
        if made is not None:
            return prove(request, say, _mend(request, made), datetime.now().astimezone())
        return _install_anew(request, say)


def _install_anew(request: Request, say: Say) -> Report:
    target, root = request.target, request.target.root
    missing = {path for path in (root.path, *root.path.parents) if not path.exists()}
    made: updater.Made | None = None
    began = datetime.now().astimezone()
    try:
        say(f"making the state root {root.path}")
        made = updater.lay_root(target)
        _write_settings(request)
        if updater.active_version(root) is None:
            artifact = request.artifact
            say(
                f"checking and unpacking {artifact.name}"
                if artifact
                else f"copying {__version__}, which runs"
            )
            follows = request.settings.updates_source == "agentrelease"
            updater.add_release(
                target,
                artifact,
                running=__version__,
                keys=request.keys,
                allow_unsigned=request.allow_unsigned,
                source="agentrelease" if follows else "off",
            )
        installer = updater.installer_for(target, updater.clock())
        say(f"registering with {target.service}")
        installer.install()
        installer.start()
        changes = [f"made {root.path}"]
        changes += [f"made {path}" for path in installer.files()] + [
            f"ran {line}" for line in installer.commands()
        ]
        if made.made_user:
            changes.append(f"made the user {made.user}")
        return prove(request, say, changes, began)
    except BaseException:
        say("taking back what was made")
        updater.undo(target, made or _noted(root), lambda path: path in missing)
        raise


def _noted(root: StateRoot) -> updater.Made | None:
    """What a run has noted that was cut while it made the state root."""
    with suppress(OSError, ValueError):
        return updater.read_made(root)
    return None


def _mend(request: Request, made: updater.Made) -> list[str]:
    """Brings what differs from what would be installed in order; returns what that was."""
    target = updater.target_of(request.target.root, made)
    changes = _copy_credentials(request.settings, target)
    updater.give_agent_its_files(target)
    if request.artifact is not None:
        updater.refuse_other_release(target.root, request.artifact)
    follows = request.settings.updates_source == "agentrelease"
    if updater.follow(target.root, agentreleases=follows):
        changes.append(f"switched updates by AgentRelease {'on' if follows else 'off'}")
        # It says in each heartbeat whether it may be updated, and reads its settings only when it starts.
        if _stopped(request):
            changes.append("restarted the agent")
    installer = updater.installer_for(target, updater.clock())
    is_installed = installer.is_installed()
    if not is_installed:
        installer.install()
        changes += [f"wrote {path}" for path in installer.files()]
    if not is_installed or (installer.running() is None and not updater.next_step(target)):
        installer.start()
        changes.append("started the agent")
    return changes


def _stopped(request: Request) -> bool:
    """Lets the agent make room for a new one, which its manager starts; whether there was one."""
    root, clock = request.target.root, updater.clock()
    try:
        old = call(root, "status")["pid"]
        call(root, "stop", restart=True)
    except HostError:
        return False
    # Nobody answers between two agents.
    with suppress(HostError):
        for _ in range(int(request.deadline_seconds / POLL_SECONDS)):
            if call(root, "status")["pid"] != old:
                break
            clock.wait(POLL_SECONDS)
    return True


def _write_settings(request: Request) -> None:
    settings, root = request.settings, request.target.root
    _copy_credentials(settings, request.target)
    if root.config_file.exists():
        return
    values = {name: value for name in KEPT if (value := getattr(settings, name))}
    values |= {"token_file": TOKEN} if settings.token_file else {}
    values |= {"ca_file": CA} if settings.ca_file else {}
    # Texts, truth values and lists of texts are written alike in JSON and TOML.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items()]
    write_durably(root.config_file, "".join(lines).encode(), mode=0o644)


def _copy_credentials(settings: Settings, target: updater.Target) -> list[str]:
    changes = []
    for name, source, mode in ((TOKEN, settings.token_file, 0o600), (CA, settings.ca_file, 0o644)):
        path = target.root.path / name
        if source is None or source == path:
            continue
        text = source.read_bytes()
        if path.exists() and path.read_bytes() == text:
            continue
        write_durably(path, text, mode=mode, owner=updater.owner_of_agent(target))
        changes.append(f"copied {source} to {path}")
    return changes
