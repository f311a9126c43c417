"""What must hold on the platter after any cut, and where every history must end."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from journeyman_updater.core.attempts import ATTEMPTS, charged
from journeyman_updater.core.launcher import copy_named_in
from journeyman_updater.model.journal import ASIDE, RENEWALS, Record, Step
from journeyman_updater.model.manifest import VALIDITY_NAME, Validity
from journeyman_updater.model.state import StateDocument
from journeyman_updater.model.unit import Unit
from journeyman_updater.steps.tree import is_valid
from journeyman_updater.transaction import Ending
from tests.crash.disk import CrashDisk, PowerCutError
from tests.crash.releases import Release
from tests.crash.world import World

NEVER = 1_000_000
"""A number of points that no history has."""


@dataclass(frozen=True)
class Evidence:
    """What a witness knew when the power failed.

    Attributes:
        states: each state document that was ever visible, in order.
        promised_state: the index of the one that something outside rests on.
        promised_records: how many records of the journal something outside rests on.
        tried: starts of a trial that really happened, by pid.
        installed: what lay on the host before the update.
    """

    states: tuple[bytes, ...]
    promised_state: int
    promised_records: int
    tried: frozenset[int]
    installed: tuple[Release, ...]


@dataclass(frozen=True)
class Cut:
    """A moment at which the power fails.

    Attributes:
        disk: with all that is still pending.
        evidence: what was promised by then.
        passed: fingerprints of what it may leave, and which kept all promises.
    """

    disk: CrashDisk
    evidence: Evidence
    passed: set[bytes] = field(default_factory=set)


class Witness:
    """Looks at a run from outside and knows what was promised to whom when the power failed.

    Whatever is visible outside (a signal, a spawn, the end of a run) rests on what was written before it; so
    all of that must be found after a cut.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.states = [world.disk.read(world.root.state_file)]
        self.promised_state = 0
        self.promised_records = 0

    def evidence(self) -> Evidence:
        """What it knows now."""
        tried, installed = frozenset(self._world.tried), self._world.installed
        return Evidence(tuple(self.states), self.promised_state, self.promised_records, tried, installed)

    def look(self) -> None:
        """Notes each state document that was ever visible."""
        state = self._world.disk.read(self._world.root.state_file)
        if self.states[-1] != state:
            self.states.append(state)

    def promise(self) -> None:
        """Something became visible outside."""
        self.look()
        self.promised_state = len(self.states) - 1
        self.promised_records = len(self._world.tools().records.history())

    def told(self) -> None:
        """How an update ended became visible outside; that rests on no record of what goes on beside it."""
        history = self._world.tools().records.history()
        while history and history[-1].step in ASIDE:
            history.pop()
        self.look()
        self.promised_state = len(self.states) - 1
        self.promised_records = max(self.promised_records, len(history))


class WatchedDisk(CrashDisk):
    """A disk whose points a witness sees, and which can keep what a cut at each of them would leave."""

    witness: Witness | None = None
    cuts: list[Cut] | None = None

    def point(self, what: str) -> None:
        # The agent's own files are written with no cut set: they are no points of the update.
        if self.witness is not None and self.cut_at is not None:
            self.witness.look()
            self.keep_cut(self.witness)
        super().point(what)
        if self.witness is not None and what.startswith(("spawn", "signal")):
            self.witness.promise()

    def told(self) -> None:
        if self.witness is not None:
            self.witness.told()

    def keep_cut(self, witness: Witness) -> None:
        """Keeps what a cut at this moment would leave, if that is wanted."""
        if self.cuts is not None:
            self.cuts.append(Cut(self.frozen(), witness.evidence()))


def check_platter(image: CrashDisk, evidence: Evidence, releases: tuple[Release, ...]) -> None:
    """I1, I2, I8, and the two rules of the journal, on what a cut has left."""
    world = World(image, releases)
    records = world.tools().records
    text = image.read(world.root.state_file)
    document = StateDocument.from_json(text)
    history = records.history()
    # No validity record lies.
    trees = [world.root.versions / name for name in image.names(world.root.versions)]
    for tree in [*trees, *(world.root.updater / name for name in image.names(world.root.updater))]:
        if image.size(tree / VALIDITY_NAME) is not None:
            sha256 = Validity.from_json(image.read(tree / VALIDITY_NAME)).sha256
            assert is_valid(image, tree, sha256), f"{tree.name} is recorded as valid, and is not"
    # What the state document names is here, whole.
    for slot in document.status.slots():
        tree = world.root.versions / slot.folder
        assert is_valid(image, tree, slot.sha256), f"state.json names {slot.folder}, which is not whole"
    _check_undo_is_registered(world, document, history, evidence.installed)
    _check_promises(text, history, world, evidence)
    _check_launchers(world, history)
    _check_unit(world, document, history)


def _check_unit(world: World, document: StateDocument, history: list[Record]) -> None:
    """What the service manager reads is whole, and what undoes a change of it is there before the change."""
    found, wanted, active = world.disk.read(world.unit_file), world.releases[2], document.status.active
    assert found in {release.unit for release in world.releases}, "the agent's unit is torn"
    if found == wanted.unit:
        sha = wanted.sha256
        assert any((each.step, each.sha) == (Step.ACTIVATE, sha) for each in history), "a unit without record"
        assert active is not None
        is_over = active.sha256 == sha
        kept = world.root.units / f"{active.folder}.json"
        assert is_over or Unit.from_json(world.disk.read(kept)).files[world.unit_file.name] != wanted.unit


def _check_launchers(world: World, history: list[Record]) -> None:
    """What a service or a timer starts is whole at any time, and is what the journal says."""
    image, root = world.disk, world.root
    named = {path: launched_copy(world, path) for path in launchers(world)}
    for path, copy in named.items():
        assert copy.name in {each.sha256[:12] for each in world.releases}, f"{path.name} is torn"
        sha256 = Validity.from_json(image.read(copy / VALIDITY_NAME)).sha256
        assert is_valid(image, copy, sha256), f"{path.name} names a copy that is not whole"
    last = next((record for record in reversed(history) if record.step in RENEWALS), None)
    if last is not None and last.step == Step.RENEWED:
        assert {copy.name for copy in named.values()} == {last.sha[:12]}, "the renewal is recorded, and gone"
    assert last is not None or len(image.names(root.updater)) == 1, "a copy without its record"
    is_removed = any(record.step == Step.RETIRE and "copies" in record.detail for record in history)
    old = root.updater / world.releases[1].sha256[:12]
    assert image.size(old / VALIDITY_NAME) is not None or is_removed, "a copy was removed without its record"


def launchers(world: World) -> tuple[Path, ...]:
    """What services and timers name."""
    root = world.root
    return root.guard_launcher, root.parent_launcher, root.updater_launcher


def launched_copy(world: World, launcher: Path) -> Path:
    """The copy that a launcher starts."""
    return world.root.updater / str(copy_named_in(world.disk.read(launcher).decode()))


def _check_undo_is_registered(
    world: World, document: StateDocument, history: list[Record], installed: tuple[Release, ...]
) -> None:
    """An act that is on the platter has its record there, too."""
    image = world.disk
    done = {(record.step, record.sha) for record in history}
    status, versions = document.status, image.names(world.root.versions)
    wanted = world.releases[2]
    sha = wanted.sha256
    acts = {
        Step.FETCH: any(name.startswith(sha) for name in image.names(world.root.downloads)),
        Step.STAGE: wanted.slot.folder in versions,
        Step.ACTIVATE: status.trial is not None,
        Step.COMMIT: status.active is not None and status.active.sha256 == sha,
        Step.ROLLBACK: status.has_rejected(sha),
    }
    for step, is_done in acts.items():
        assert not is_done or (step, sha) in done, f"{step} without its record"
    whole = [each for each in installed if image.size(world.root.versions / each.slot.folder / VALIDITY_NAME)]
    is_retired = any(record.step == Step.RETIRE for record in history)
    assert len(whole) == len(installed) or is_retired, "a deletion without its record"
    if (Step.STAGE, sha) in done and not done & {(Step.COMMIT, sha), (Step.ROLLBACK, sha)}:
        assert _is_here(image, world, wanted), "a fetched artifact is gone"


def _is_here(image: CrashDisk, world: World, release: Release) -> bool:
    artifact = world.root.downloads / f"{release.sha256}.tar.gz"
    tree = world.root.versions / release.slot.folder
    is_whole = image.size(artifact) is not None and _sha256(image.read(artifact)) == release.sha256
    return is_whole or is_valid(image, tree, release.sha256)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_promises(text: bytes, history: list[Record], world: World, evidence: Evidence) -> None:
    assert text in evidence.states[evidence.promised_state :], "a decision that was acted on is gone"
    assert len(history) >= evidence.promised_records, "a record that was acted on is gone"
    assert [record.seq for record in history] == list(range(1, len(history) + 1))
    assert evidence.tried <= {item.pid for item in world.tools().records.attempts()}, "a start is forgotten"


def converge(world: World, wanted: Release, *, is_good: bool) -> None:
    """I3-I7 and I9: from here every history ends in the one good state, and stays there."""
    assert world.agent is not None, "nothing runs after the boot"
    was_here = _is_here(world.disk, world, wanted)
    quiet = 0
    for _ in range(8):
        before = len(world.disk.points)
        outcome = world.update(wanted.request())
        attempts = world.tools().records.attempts()
        for nonce in {item.nonce for item in attempts}:
            assert charged(attempts, nonce, world.boot_id()) <= ATTEMPTS
        is_over = outcome.ending in {Ending.NOT_NEEDED, Ending.REFUSED}
        # Once may be too early: what a starting agent runs is in doubt, and then nothing is deleted.
        quiet = quiet + 1 if is_over and len(world.disk.points) == before else 0
        if quiet == 2:
            break
        world.wait(1)
    else:
        raise AssertionError(f"it does not come to an end: {outcome}")
    status = StateDocument.from_json(world.disk.read(world.root.state_file)).status
    expected = wanted if is_good else world.releases[1]
    assert not (was_here and world.bytes_fetched), "a byte of a complete artifact was fetched again"
    assert status.trial is None
    assert status.active is not None
    assert status.active.sha256 == expected.sha256
    assert status.has_rejected(wanted.sha256) is not is_good
    assert world.agent is not None
    assert world.agent.release == expected
    assert set(world.disk.names(world.root.versions)) == {slot.folder for slot in status.slots()}
    assert not world.disk.names(world.root.downloads)
    assert world.disk.read(world.unit_file) == world.agent.unit == expected.unit
    assert world.disk.names(world.unit_file.parent) == [world.unit_file.name]
    needed = {f"{slot.folder}.json" for slot in status.slots()}
    assert set(world.disk.names(world.root.units)) <= needed
    assert world.disk.size(world.root.pause_file) is None
    assert {launched_copy(world, path).name for path in launchers(world)} == {expected.sha256[:12]}
    assert world.disk.names(world.root.updater) == [expected.sha256[:12]]
    assert not [name for name in world.disk.names(world.root.path) if name.endswith(".next")]
    _assert_still(world, wanted)


def _assert_still(world: World, wanted: Release) -> None:
    before, starts, fetched = len(world.disk.points), len(world.starts), world.bytes_fetched
    world.update(wanted.request())
    assert len(world.disk.points) == before, "a further run writes"
    assert (len(world.starts), world.bytes_fetched) == (starts, fetched), "a further run restarts or fetches"


def run_until_cut(world: World, wanted: Release, cut_at: int = NEVER) -> None:
    """Runs the update and fails the power before the point of that number; past the last, nothing fails."""
    disk = world.disk
    assert isinstance(disk, WatchedDisk)
    # A second run on a host whose updater was killed goes on with what was promised before.
    disk.witness = disk.witness or Witness(world)
    disk.cut_at = cut_at
    with contextlib.suppress(PowerCutError):
        world.update(wanted.request())
        disk.witness.promise()
        # From the new copy, if there is one: only now the old one goes.
        world.update(wanted.request())
        disk.witness.promise()
        disk.keep_cut(disk.witness)
    disk.cut_at = None
