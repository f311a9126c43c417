"""What a join leaves in the state root, and what is taken away when the node is given back."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import journeyman_updater.installation as updater
from journeyman import __version__
from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.node_file import NodeFileKeeper
from journeyman.adapters.node_identity import establish_identity, read_host_facts
from journeyman.adapters.system_clock import SystemClock
from journeyman.core.config_block import Value, has_block, with_block, without_block
from journeyman.core.node_name import NodeIdentity
from journeyman.errors import ConfigError, HostError
from journeyman.settings import Settings, load_settings
from journeyman_updater.contract import StateRoot, write_durably
from journeyman_updater.contract.durable import sync_directory
from journeyman_updater.contract.node import NodeFile

RELEASE_KEY = "plane.pub"


def identity(settings: Settings) -> NodeIdentity:
    """Who this installation is; made if this is the first that anybody asks."""
    settings.root.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = read_host_facts(probe_timeout_seconds=settings.probe_timeout_seconds)
    return establish_identity(JsonFile(settings.root.identity_file), facts)


def has_joined(root: StateRoot) -> bool:
    """Whether an earlier join is in force here."""
    return has_block(_config(root))


def joined_server(root: StateRoot) -> str:
    """The control plane of the join that is in force here; empty if there is none."""
    if not has_joined(root) or not root.node_file.exists():
        return ""
    return NodeFile.from_json(root.node_file.read_bytes()).server


def refuse_own_settings(root: StateRoot, wanted: Mapping[str, Value]) -> None:
    """Raises ConfigError where a person has set what the join is about to set."""
    loaded = load_settings({"state_root": root.path}, {})
    if has_joined(root):
        return
    for name in wanted:
        origin = loaded.origins[name]
        if origin.kind != "default":
            raise ConfigError(
                f"{name} ({origin}) is set already, and a join sets it",
                "Take that line out of the file, and give its value to `journeyman join`.",
            )


def write_config(root: StateRoot, values: Mapping[str, Value]) -> None:
    """Puts the settings of the join into `config.toml`."""
    write_durably(root.config_file, with_block(_config(root), values).encode(), mode=0o644)


def keep_release_key(root: StateRoot, key: str) -> None:
    """Pins the key that signs the releases of the plane."""
    root.keys.mkdir(mode=0o755, exist_ok=True)
    write_durably(root.keys / RELEASE_KEY, key.encode(), mode=0o644)


def keep_node_file(root: StateRoot, name: str) -> None:
    """Tells the updater what the settings say now, before the agent has run."""
    plane = HttpControlPlane(
        load_settings({"state_root": root.path}, {}).settings, SystemClock(), version=__version__, environ={}
    )
    NodeFileKeeper(root, name, plane.access).keep(plane.held())


def forget_others(root: StateRoot) -> None:
    """Removes credentials of earlier joins that the settings no longer name, and what a request has left."""
    settings = load_settings({"state_root": root.path}, {}).settings
    mine = {settings.token_file, settings.certificate_file, settings.kubeconfig}
    for path in (root.token_file, root.certificate_file, root.kubeconfig, root.certificate_request):
        if path not in mine:
            path.unlink(missing_ok=True)
    sync_directory(root.agent)


def give_to_agent(root: StateRoot) -> None:
    """In a system install the files of a join are the agent's, who keeps them current.

    Raises:
        HostError: they cannot be given away.
    """
    try:
        made = updater.read_made(root)
        if made is None or not made.user:
            return
        updater.give_agent_its_files(updater.target_of(root, made))
    except (OSError, ValueError, LookupError) as error:
        raise HostError(
            f"the files of the join cannot be given to the agent's user: {error}", "Run this as root."
        ) from error


def take_away(root: StateRoot) -> list[str]:
    """Removes credential, CA, key, `node.json` and the lines in `config.toml`; returns what was there."""
    config = without_block(_config(root))
    if config.strip():
        write_durably(root.config_file, config.encode(), mode=0o644)
    gone = [*_agents_files(root), *root.credentials.glob("*"), root.keys / RELEASE_KEY]
    gone += [] if config.strip() else [root.config_file]
    removed = [str(path) for path in gone if path.exists()]
    for path in gone:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        root.credentials.rmdir()
    for folder in (root.path, root.agent):
        sync_directory(folder)
    return removed


def _agents_files(root: StateRoot) -> tuple[Path, ...]:
    own = (root.token_file, root.certificate_file, root.certificate_request, root.ca_file, root.kubeconfig)
    return *own, root.node_file, root.node_memory


def text_of(path: Path, what: str) -> str:
    """The text of a file that a person has named.  Raises ConfigError with what it was to be."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"the {what} {path} cannot be read: {reason}", "Name a readable file.") from error


def _config(root: StateRoot) -> str:
    try:
        return root.config_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
