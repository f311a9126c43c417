"""What an update costs: staging, bytes, downtime, the way from an approval to a commit, and the way back.

Releases are real ones, and so are the agent, its guard and the plane.  A release is built first, which takes
its wheels from the network unless pip has them.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, median_of
from journeyman_updater.contract import StateRoot
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Sha256, Slot, UpdateRequest, VersionId
from journeyman_updater.run import compose
from journeyman_updater.settings import Settings
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.fetch import ask_for_promise, fetch
from journeyman_updater.steps.stage import stage
from tests.simulator.release_server import ReleaseServer, cut_at
from tests.support.installed_nodes import UPDATER, InstalledNode, installed_node, journeyman
from tests.support.plane import PlaneProcess, spawn_plane
from tests.support.real_releases import BASE_VERSION, CRASHES, HANGS, RealReleases
from tests.support.waiting import eventually

STAGINGS = 3
CUTS = 10
PATIENCE_SECONDS = 150.0
HEARTBEAT_SECONDS = 1.0  # Of the agents of tests.


def measure() -> list[Figure]:
    """Takes about five minutes; the release that hangs takes one of them."""
    with tempfile.TemporaryDirectory(prefix="journeyman-bench-") as name:
        folder = Path(name)
        releases = RealReleases(folder)
        artifact = releases.derive(BASE_VERSION)
        return [*_staging(folder, artifact), *_bytes(folder, artifact), *_updates(folder, releases, artifact)]


class _NoExecCheck:
    """Stands in for the exec check, whose time is the start of a program and is told apart."""

    def run(self, tree: Path, *, product: str, version: VersionId) -> None:
        pass


def _staging(folder: Path, artifact: Path) -> list[Figure]:
    staged, by_hand, at_once, checks = [], [], [], []
    for number in range(STAGINGS):
        tools, slot = _tools(folder / f"staging-{number}"), _slot(artifact)
        began = time.monotonic()
        stage(replace(tools, exec_check=_NoExecCheck()), slot, artifact)
        staged.append(time.monotonic() - began)
        began = time.monotonic()
        tools.exec_check.run(tools.tree(slot), product="journeyman", version=slot.version)
        checks.append(time.monotonic() - began)
        by_hand.append(_by_hand(folder / f"by-hand-{number}", artifact, 'find "$2" -exec sync {} +'))
        at_once.append(_by_hand(folder / f"at-once-{number}", artifact, 'sync -f "$2"'))
    return [
        median_of("staging", staged, "s"),
        median_of("tar x + sha256sum + sync of each file", by_hand, "s"),
        median_of("tar x + sha256sum + sync -f", at_once, "s"),
        median_of("staging / with sync of each file", _ratios(staged, by_hand), "x", 1.25),
        median_of("staging / with sync -f", _ratios(staged, at_once), "x"),
        median_of("exec check", checks, "s"),
    ]


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def _by_hand(folder: Path, artifact: Path, flush: str) -> float:
    """The same with the tools of the system: without the flush it would promise less than staging does."""
    folder.mkdir()
    commands = f'tar -xzf "$1" -C "$2" && sha256sum "$1" >/dev/null && {flush}'
    began = time.monotonic()
    subprocess.run(["/bin/sh", "-c", commands, "sh", artifact, folder], check=True)
    return time.monotonic() - began


def _bytes(folder: Path, artifact: Path) -> list[Figure]:
    tools, body = _tools(folder / "cuts"), artifact.read_bytes()
    offsets = [len(body) * number // (CUTS + 1) for number in range(1, CUTS + 1)]
    with ReleaseServer() as server:
        url = server.publish("/artifact", body, cut_at(offsets))
        slot = _slot(artifact)
        request = UpdateRequest(slot.version, url, slot.sha256)
        promise = ask_for_promise(tools, request)
        fetch(tools, request, promise)
        sent = server.sent_bytes["/artifact"]
        fetch(tools, request, promise)
        again = server.sent_bytes["/artifact"] - sent
    return [
        Figure(f"bytes under {CUTS} cuts / artifact", round(sent / len(body), 4), "x", 1.01),
        Figure("bytes when it is here already", again, "B", 0),
    ]


def _updates(folder: Path, releases: RealReleases, artifact: Path) -> list[Figure]:
    with spawn_plane(folder) as plane:
        _publish(folder, artifact)
        with installed_node(
            folder,
            artifact,
            plane.data_dir / "release.pub",
            name="bench",
            server=plane.url,
            token_file=plane.data_dir / "admin.token",
        ) as node:
            figures = _good(folder, releases, plane, node)
            # The way back is measured with the deadlines of the product.
            node.root.updater_settings.unlink()
            for number, (what, line) in enumerate((("crash", CRASHES), ("hang", HANGS))):
                seconds = _rollback(folder, releases.derive(f"1.2.{number}", at_run=line), node)
                figures.append(Figure(f"rollback of a {what}", round(seconds, 1), "s", 75))
    return figures


def _good(folder: Path, releases: RealReleases, plane: PlaneProcess, node: InstalledNode) -> list[Figure]:
    release = _publish(folder, releases.derive("1.1.0"))
    with plane.client() as client:
        began = time.monotonic()
        client.get(release["spec"]["artifacts"][0]["url"]).raise_for_status()
        transfer = time.monotonic() - began
    approved = time.monotonic()
    _command("approve", release["metadata"]["name"], folder)
    eventually(lambda: _seconds_of(node, Step.COMMITTED, "1.1.0"), within_seconds=PATIENCE_SECONDS)
    whole = _seconds_of(node, Step.COMMITTED, "1.1.0") - approved
    overhead = whole - transfer - float(UPDATER["soak_seconds"]) - HEARTBEAT_SECONDS
    downtime = _ready_after(node, 2) - _seconds_of(node, Step.ACTIVATE, "1.1.0")
    return [
        Figure("agent downtime in an update", round(downtime, 2), "s", 2),
        Figure("approval to HEALTHY", round(whole, 2), "s"),
        Figure("the same without transfer, soak and beat", round(overhead, 2), "s", 5),
    ]


def _rollback(folder: Path, artifact: Path, node: InstalledNode) -> float:
    """From the moment in which a bad release is activated until the good one is READY again."""
    starts = len(_ready_times(node))
    _publish(folder, artifact, "--approve", "--timeout-seconds", "60")
    version = artifact.name.removeprefix("journeyman-").removesuffix(".tar.gz")
    eventually(lambda: _seconds_of(node, Step.ROLLED_BACK, version), within_seconds=2 * PATIENCE_SECONDS)
    eventually(lambda: len(_ready_times(node)) > starts, within_seconds=PATIENCE_SECONDS)
    return _ready_after(node, starts + 1) - _seconds_of(node, Step.ACTIVATE, version)


def _ready_after(node: InstalledNode, start: int) -> float:
    """When the agent was READY for the nth time, on the monotonic clock."""
    return _ready_times(node)[start - 1] - (time.time() - time.monotonic())


def _ready_times(node: InstalledNode) -> list[float]:
    events = [json.loads(line) for line in node.log().splitlines() if line.startswith('{"node_name"')]
    return [datetime.fromisoformat(event["timestamp"]).timestamp() for event in events
            if event["event"] == "agent_ready"]  # fmt: skip


def _seconds_of(node: InstalledNode, step: Step, version: str) -> float:
    """When that step of that release was last recorded, on the monotonic clock; 0 if it was not."""
    found = [item.mono_ns for item in node.history() if (item.step, item.release) == (step, version)]
    return found[-1] / 1e9 if found else 0.0


def _publish(folder: Path, artifact: Path, *options: str) -> dict[str, Any]:
    release: dict[str, Any] = json.loads(_command("publish", artifact, folder, *options))
    return release


def _command(verb: str, subject: str | Path, folder: Path, *options: str) -> str:
    done = journeyman("release", verb, subject, *options, "--state-root", folder, "--json")
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout


def _tools(root: Path) -> Tools:
    state = StateRoot(root)
    for path in (state.path, state.versions, state.downloads):
        path.mkdir()
    return compose(state, Settings(allow_unsigned=True), lambda _here, _total: None)


def _slot(artifact: Path) -> Slot:
    with artifact.open("rb") as file:
        return Slot(VersionId(BASE_VERSION), Sha256(hashlib.file_digest(file, "sha256").hexdigest()))
