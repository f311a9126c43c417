"""`journeyman release`: publish versions of the agent, and steer how they are rolled out over the fleet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import client_flags
from journeyman.client import control_plane
from journeyman.core.server_url import is_loopback
from journeyman.errors import UsageError
from journeyman.model.agent_release import AgentRelease
from journeyman.releases import RELEASES, Publication, Published, change, publish
from journeyman.settings import Loaded, Settings

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
COLUMNS = ("name", "version", "phase", "updated", "in flight", "halted by")


@click.group(epilog="Example: journeyman release list")
def command() -> None:
    """Publish versions of the agent and roll them out, a few nodes at a time."""


@command.command(
    "publish",
    epilog="Example: journeyman release publish dist/journeyman-0.2.0-linux-amd64.tar.gz --approve",
)
@click.argument("artifact", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--approve", is_flag=True, help="Let the rollout begin at once.")
@click.option("--concurrency", type=click.IntRange(1), default=1, show_default=True, help="Nodes at a time.")
@click.option("--selector", "labels", multiple=True, metavar="KEY=VALUE", help="Only nodes with this label.")
@click.option(
    "--min-healthy-seconds",
    type=click.IntRange(0),
    default=60,
    show_default=True,
    help="Time a node must be healthy on it before the next one begins.",
)
@click.option(
    "--timeout-seconds", type=click.IntRange(1), default=600, show_default=True, help="Time a node may take."
)
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Secret key to sign with; else the .minisig file beside ARTIFACT, or the key of the plane here.",
)
@click.option("--sequence", type=click.IntRange(0), help="Order of releases, signed; the manifest's own.")
@click.option(
    "--expires",
    "expires_days",
    type=click.IntRange(1),
    metavar="DAYS",
    help="Time for which the signature permits an update; a year.",
)
@click.option(
    "--url-base", default="", metavar="URL", help="Where nodes reach the plane, if not at --server."
)
@JSON
@client_flags
def publish_command(
    *, loaded: Loaded, as_json: bool, approve: bool, labels: tuple[str, ...], **options: Any
) -> None:
    """Sign ARTIFACT, upload it to the plane and create its AgentRelease.

    ARTIFACT is what scripts/release build makes.  Whatever a node would refuse is refused before the upload.
    Run it once for each platform of a version.
    """
    publication = Publication(approve=approve, labels=_labels(labels), **options)
    done = asyncio.run(_publish(loaded.settings, publication))
    if as_json:
        print_json(done.release)
    else:
        _tell(done)


@command.command("list", epilog="Example: journeyman release list --json")
@JSON
@client_flags
def list_command(*, loaded: Loaded, as_json: bool) -> None:
    """List the releases and how far each is."""
    items = asyncio.run(_list(loaded.settings))
    if as_json:
        print_json(items)
    else:
        print_table(COLUMNS, [_row(AgentRelease.from_wire(item)) for item in items])


@command.command(epilog="Example: journeyman release show foreman-agent-0.2.0")
@click.argument("name")
@JSON
@client_flags
def show(*, loaded: Loaded, name: str, as_json: bool) -> None:
    """Show how far a release is on each node, and why it goes no further."""
    item = asyncio.run(_get(loaded.settings, name))
    if as_json:
        print_json(item)
        return
    release = AgentRelease.from_wire(item)
    print_table(COLUMNS, [_row(release)])
    nodes = release.status.node_statuses
    rows = [(node.name, node.phase, node.observed_version, node.reason, node.message) for node in nodes]
    print_table(("node", "phase", "version", "reason", "message"), rows)
    print(_what_follows(release))


@command.command(epilog="Example: journeyman release approve foreman-agent-0.2.0")
@click.argument("name")
@JSON
@client_flags
def approve(*, loaded: Loaded, name: str, as_json: bool) -> None:
    """Let a rollout begin."""
    _change(loaded.settings, name, as_json=as_json, approved=True)


@command.command(epilog="Example: journeyman release pause foreman-agent-0.2.0")
@click.argument("name")
@JSON
@client_flags
def pause(*, loaded: Loaded, name: str, as_json: bool) -> None:
    """Ask no further node, and take back what was asked; a node in the middle of an update finishes it."""
    _change(loaded.settings, name, as_json=as_json, paused=True)


@command.command(epilog="Example: journeyman release resume foreman-agent-0.2.0")
@click.argument("name")
@JSON
@client_flags
def resume(*, loaded: Loaded, name: str, as_json: bool) -> None:
    """Go on with a rollout that was paused."""
    _change(loaded.settings, name, as_json=as_json, paused=False)


def _change(settings: Settings, name: str, *, as_json: bool, **spec: bool) -> None:
    item = asyncio.run(_patch(settings, name, spec))
    if as_json:
        print_json(item)
    else:
        print(_what_follows(AgentRelease.from_wire(item)))


async def _publish(settings: Settings, publication: Publication) -> Published:
    async with control_plane(settings) as plane:
        return await publish(plane, settings, publication)


async def _list(settings: Settings) -> list[dict[str, Any]]:
    async with control_plane(settings) as plane:
        return (await plane.list(RELEASES)).items


async def _get(settings: Settings, name: str) -> dict[str, Any]:
    async with control_plane(settings) as plane:
        return await plane.get(RELEASES.named(name))


async def _patch(settings: Settings, name: str, spec: dict[str, bool]) -> dict[str, Any]:
    async with control_plane(settings) as plane:
        return await change(plane, name, **spec)


def _tell(done: Published) -> None:
    release = AgentRelease.from_wire(done.release)
    manifest = done.candidate.manifest
    print(f"release    {manifest.version.spelled} for {manifest.os}/{manifest.arch}")
    print(f"sha256     {done.candidate.sha256}")
    print(f"signed by  {done.signed_by}")
    print(f"artifact   {done.url}")
    print(f"{'made' if done.is_new else 'is there'}   AgentRelease {release.metadata.name}")
    if is_loopback(urlsplit(done.url).hostname or ""):
        print("note       only this host reaches that address; for others publish with --url-base")
    print(_what_follows(release))


def _what_follows(release: AgentRelease) -> str:
    name, halted = release.metadata.name, _halted_by(release)
    if halted:
        return f"Halted: {halted}.  The other nodes keep what they run; publish a better version."
    if release.spec.paused:
        return f"Paused.  Next: journeyman release resume {name}"
    if not release.spec.approved:
        return f"Nothing happens before it is approved.  Next: journeyman release approve {name}"
    if release.status.phase == "Succeeded":
        return "Every node runs it."
    return f"Approved: {release.spec.concurrency} at a time.  Next: journeyman release show {name}"


def _row(release: AgentRelease) -> tuple[object, ...]:
    status = release.status
    return (
        release.metadata.name,
        release.spec.version,
        status.phase or "Pending",
        f"{status.updated_nodes}/{status.target_nodes}",
        status.in_flight_nodes,
        _halted_by(release),
    )


def _halted_by(release: AgentRelease) -> str:
    failed = next((node for node in release.status.node_statuses if node.phase == "Failed"), None)
    return f"{failed.name}: {failed.reason}" if failed else ""


def _labels(pairs: tuple[str, ...]) -> dict[str, str]:
    if not all("=" in pair for pair in pairs):
        raise UsageError("--selector takes KEY=VALUE", "for example --selector site=berlin")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}
