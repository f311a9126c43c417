"""`journeyman join`: proves that the credential works, then writes what agent and updater need."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from journeyman import __version__
from journeyman.adapters.access import access_of
from journeyman.adapters.client_certificate import CertificateFile, X509Certificates
from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.plane_ca import fetch_ca, is_trusted
from journeyman.adapters.root_lock import root_lock
from journeyman.adapters.system_clock import SystemClock
from journeyman.adapters.tls import with_contents
from journeyman.client import NODES
from journeyman.core.beat import beats_elsewhere
from journeyman.core.ca_pin import checked_pin, pin_of
from journeyman.core.config_block import Value
from journeyman.core.kubeconfig import flattened
from journeyman.core.node_name import NodeIdentity, checked_name
from journeyman.core.server_url import checked_server_url
from journeyman.enrolment import Enrolment, Kept
from journeyman.errors import (
    ConfigError,
    ConflictError,
    ControlPlaneError,
    NameTakenError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from journeyman.joining import files
from journeyman.joining.enrolling import obtained, refused_newcomer
from journeyman.joining.model import Joined, JoinRequest, Say
from journeyman.model.access import Access
from journeyman.model.fleet_node import FleetNode
from journeyman.settings import Settings
from journeyman.settings.kinds import NAMESPACE
from journeyman_updater.contract import StateRoot, write_durably
from journeyman_updater.contract.durable import sync_directory

JOIN_PREFIX, NODE_PREFIX = "join.", "node."
PLANE, CLUSTER = "plane", "cluster"
TAKEN_ADVICE = "Stop that agent, or join under another name with --name."


def join(request: JoinRequest, say: Say) -> Joined:
    """Makes this machine a node.

    Args:
        request: what and where.
        say: is told what is being done, a line each.

    Raises:
        AlreadyRunningError: an agent runs on the state root.
        ConfigError: a setting of a person stands against it, or a file cannot be used.
        NameTakenError: another agent beats under the name.
        ControlPlaneError: the control plane refuses, or does not answer.  Then nothing is joined; the same
            command may be tried again.
    """
    root = request.settings.root
    root.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with root_lock(root):
        who = files.identity(request.settings)
        name = checked_name(request.name or request.settings.node_name or who.node_name)
        server, kind, ca_hash = _way_of(request)(request, who, name, say)
        files.keep_node_file(root, name)
        files.forget_others(root)
        files.give_to_agent(root)
    credentials = (root.token_file, root.certificate_file, root.kubeconfig)
    rest = (root.ca_file, root.keys / files.RELEASE_KEY, root.config_file, root.node_file)
    written = [str(path) for path in (*credentials, *rest) if path.exists()]
    return Joined(name, server, kind, ca_hash, written)


Way = Callable[[JoinRequest, NodeIdentity, str, Say], tuple[str, str, str]]


def _way_of(request: JoinRequest) -> Way:
    if request.by_certificate:
        return _with_certificate
    return _with_kubeconfig if request.token_file is None else _with_token


def _with_token(request: JoinRequest, who: NodeIdentity, name: str, say: Say) -> tuple[str, str, str]:
    """Joins by a join token, or by the token of an account; returns server, kind, and hash of the CA."""
    settings, root, token_file = request.settings, request.settings.root, request.token_file
    assert token_file is not None
    server = checked_server_url(request.server, allow_insecure_http=settings.allow_insecure_http)
    token = files.text_of(token_file, "token file")
    kind = PLANE if token.startswith(JOIN_PREFIX) else CLUSTER
    _refuse_second(root, server)
    values: dict[str, Value] = {"server": server, "token_file": _below(root, root.token_file)}
    values |= _values(request, name, kind)
    files.refuse_own_settings(root, values)
    ca_file = _trusted_ca(request, server)
    values |= {"ca_file": _below(root, root.ca_file)} if ca_file else {}
    said = settings.model_copy(update=_only(server=server, ca_file=ca_file, token_file=token_file))
    say(f"joining {server} as {name}")
    if kind == PLANE:
        facts = _exchanged(said, who, name)
        files.keep_release_key(root, facts["releaseKey"])
    else:
        asyncio.run(_proven(said, who, name))
        write_durably(root.token_file, f"{token}\n".encode())
    files.write_config(root, values)
    return server, kind, pin_of(root.ca_file.read_text()) if ca_file else ""


def _with_certificate(request: JoinRequest, who: NodeIdentity, name: str, say: Say) -> tuple[str, str, str]:
    """Joins by a client certificate that the token of the request may ask for; as `_with_token`."""
    settings, root, token_file = request.settings, request.settings.root, request.token_file
    assert token_file is not None
    server = checked_server_url(request.server, allow_insecure_http=settings.allow_insecure_http)
    if server.startswith("http:"):
        raise ConfigError(
            f"{server} is plain http, over which no certificate is shown", "Name its https URL."
        )
    if files.text_of(token_file, "token file").startswith(JOIN_PREFIX):
        raise ConfigError(
            f"{token_file} holds a join token of an embedded plane, which signs no certificates",
            "Leave --csr out.",
        )
    _refuse_second(root, server)
    values: dict[str, Value] = {"server": server, "certificate_file": _below(root, root.certificate_file)}
    values |= _values(request, name, CLUSTER)
    files.refuse_own_settings(root, values)
    ca_file = _trusted_ca(request, server)
    values |= {"ca_file": _below(root, root.ca_file)} if ca_file else {}
    asking = settings.model_copy(update=_only(server=server, ca_file=ca_file, token_file=token_file))
    say(f"joining {server} as {name}")
    kept = asyncio.run(_enrolled(asking, request.wait_seconds, name, say))
    access = Access(server, ca_file=str(ca_file or ""), certificate_data=kept.certificate, key_data=kept.key)
    try:
        asyncio.run(_proven(asking, who, name, access))
    except UnauthorizedError as error:
        raise refused_newcomer(error, name) from error
    CertificateFile(root.certificate_file).write(kept.certificate, kept.key)
    files.write_config(root, values)
    return server, CLUSTER, pin_of(root.ca_file.read_text()) if ca_file else ""


async def _enrolled(settings: Settings, wait_seconds: float, name: str, say: Say) -> Kept:
    clock = SystemClock()
    api = HttpControlPlane(settings, clock, version=__version__)
    try:
        enrolment = Enrolment(
            api=api,
            certificates=X509Certificates(),
            memory=JsonFile(settings.root.certificate_request),
            clock=clock,
            server=api.access.server,
            node=name,
            life_seconds=settings.certificate_life_seconds,
        )
        poll_seconds = settings.certificate_poll_seconds
        return await obtained(enrolment, clock, say, wait_seconds=wait_seconds, poll_seconds=poll_seconds)
    finally:
        await api.aclose()


def _with_kubeconfig(request: JoinRequest, who: NodeIdentity, name: str, say: Say) -> tuple[str, str, str]:
    """Joins by a kubeconfig that was handed over, of which the one context is copied; as `_with_token`."""
    settings, root = request.settings, request.settings.root
    access = with_contents(access_of(settings, {}))
    _refuse_second(root, access.server)
    values: dict[str, Value] = {"kubeconfig": _below(root, root.kubeconfig)}
    values |= _values(request, name, CLUSTER)
    files.refuse_own_settings(root, values)
    say(f"joining {access.server} as {name}")
    asyncio.run(_proven(settings, who, name))
    write_durably(root.kubeconfig, json.dumps(flattened(access), indent=2).encode())
    files.write_config(root, values)
    return access.server, CLUSTER, pin_of(access.ca_data) if access.ca_data else ""


def _only(**access: Any) -> dict[str, Any]:
    """Settings of this access and none of an earlier join."""
    return {"kubeconfig": None, "certificate_file": None, **access}


def _below(root: StateRoot, path: Path) -> str:
    """A path as `config.toml` names it, which lies at the top of the state root."""
    return str(path.relative_to(root.path))


def _refuse_second(root: StateRoot, server: str) -> None:
    joined = files.joined_server(root)
    if joined not in {"", server}:
        raise ConfigError(
            f"this host has joined {joined} already", "Give that node back first: journeyman leave"
        )


def _values(request: JoinRequest, name: str, kind: str) -> dict[str, Value]:
    """What goes into `config.toml`, whatever the credential; paths are relative to it."""
    values: dict[str, Value] = {"node_name": name}
    if request.labels:
        values["node_labels"] = dict(request.labels)
    if request.roles:
        values["roles"] = list(request.roles)
    values |= _namespaces(request.namespaces)
    if request.settings.allow_insecure_http:
        values["allow_insecure_http"] = True
    # On a cluster other agents' releases might select this node, until `journeyman preflight` has shown none.
    if kind == PLANE:
        values["updates_source"] = "agentrelease"
    return values


def _namespaces(names: Sequence[str]) -> dict[str, Value]:
    """Raises ConfigError for a name that is none, before a token is spent."""
    for name in names:
        if not NAMESPACE.fullmatch(name):
            raise ConfigError(f"{name} is no name of a namespace", "Correct --namespace.")
    several: dict[str, Value] = {"task_namespaces": list(names)} if len(names) > 1 else {}
    return ({"namespace": names[0]} if names else {}) | several


def _trusted_ca(request: JoinRequest, server: str) -> Path | None:
    """The file of the CA that vouches for the server, in the state root; None where this system knows it.

    Raises:
        ConfigError: nobody vouches for it.
    """
    root, seconds = request.settings.root, request.settings.request_timeout_seconds
    if request.ca_file is not None:
        pem = files.text_of(request.ca_file, "CA file") + "\n"
        found = pin_of(pem)
    elif server.startswith("http:") or (not request.ca_hash and is_trusted(server, seconds)):
        if request.ca_hash:
            raise ConfigError(f"{server} is plain http, which --ca-hash cannot prove", "Name its https URL.")
        return None
    else:
        pem = fetch_ca(server, seconds)
        found = pin_of(pem)
        if not request.ca_hash and not request.trust(found):
            raise ConfigError(
                f"nobody vouches for the CA of {server}, whose hash is {found}",
                f"Compare it with the one on the plane, and say so: --ca-hash {found}",
            )
    if request.ca_hash and found != checked_pin(request.ca_hash):
        raise ConfigError(
            f"the CA of {server} has the hash {found}, not {checked_pin(request.ca_hash)}",
            "Somebody stands between this machine and the plane, or the hash is of another plane.",
        )
    write_durably(root.ca_file, pem.encode(), mode=0o644)
    return root.ca_file


def _exchanged(settings: Settings, who: NodeIdentity, name: str) -> dict[str, Any]:
    """Spends the join token of the settings for a credential, which is on disk before it is asked for."""
    path = settings.root.token_file
    # One that waits there is of a try whose answer was lost: the plane may know it already.
    waiting = path.with_name(f"{path.name}.joining")
    if not waiting.exists() or not waiting.read_bytes().startswith(f"{NODE_PREFIX}{name}.".encode()):
        write_durably(waiting, f"{NODE_PREFIX}{name}.{secrets.token_urlsafe(32)}\n".encode())
    credential = waiting.read_text(encoding="ascii").strip()
    asked = {"name": name, "instance": who.instance, "credential": credential}
    try:
        facts = asyncio.run(_posted(settings, asked))
    except UnreachableError:
        raise
    except ControlPlaneError as error:
        waiting.unlink()
        if isinstance(error, ConflictError) and error.reason == "NameTaken":
            raise NameTakenError(f"another agent beats as FleetNode {name}", TAKEN_ADVICE) from error
        raise
    waiting.replace(path)
    sync_directory(path.parent)
    return facts


async def _posted(settings: Settings, asked: dict[str, Any]) -> dict[str, Any]:
    plane = HttpControlPlane(settings, SystemClock(), version=__version__)
    try:
        return await plane.post("/join", asked)
    finally:
        await plane.aclose()


async def _proven(settings: Settings, who: NodeIdentity, name: str, access: Access | None = None) -> None:
    """A credential that was handed over: whether it reads our node, and nobody else beats there."""
    clock = SystemClock()
    plane = HttpControlPlane(settings, clock, version=__version__, access=access)
    try:
        node = FleetNode.from_wire(await plane.get(NODES.named(name)))
    except NotFoundError:
        return
    finally:
        await plane.aclose()
    now = clock.now() + timedelta(seconds=plane.last_offset_seconds())
    if beats_elsewhere(node, who.instance, now):
        raise NameTakenError(f"another agent beats as FleetNode {name}", TAKEN_ADVICE)
