"""The first release of a state root, from a file or from what runs: after it the guard has something to run.

It lays down what a host needs to run and to update itself with nothing else of Journeyman installed: the
release, committed; a copy of it for the updater, which no update of the agent touches; the pinned keys; and
three launchers, each a few lines of sh.  Each act can be done again, so a run that was cut is simply run
again; the state document, which makes the root an installed one, comes last.  Services are left to others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.adapters.host_facts import recorded_python
from journeyman_updater.adapters.minisign import LONGEST_SIGNATURE_BYTES
from journeyman_updater.adapters.minisign_keys import PublicKey
from journeyman_updater.adapters.snapshot import lay_out_running
from journeyman_updater.contract import StateRoot
from journeyman_updater.core.launcher import render_launchers
from journeyman_updater.errors import Reason, RequestError, UpdaterError
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Sha256, Slot, UpdateRequest, VersionId
from journeyman_updater.model.state import Spec, StateDocument, Status
from journeyman_updater.ports import SelfCheck
from journeyman_updater.publish import read
from journeyman_updater.renewal import compose_check
from journeyman_updater.run import compose
from journeyman_updater.settings import Settings
from journeyman_updater.steps.base import Tools, replace_durably
from journeyman_updater.steps.commit import finish_commit
from journeyman_updater.steps.copy import lay_copy
from journeyman_updater.steps.fetch import ask_for_promise, fetch, pinned_keys, signature_url
from journeyman_updater.steps.retire import retire
from journeyman_updater.steps.snapshot import stage_snapshot
from journeyman_updater.steps.stage import is_staged, stage
from journeyman_updater.steps.tree import read_manifest

# What callers need to speak of it.
__all__ = ["Installed", "UpdaterError", "bootstrap"]


@dataclass(frozen=True)
class Installed:
    """What a state root has after `bootstrap`.

    Attributes:
        slot: the active release.
        guard: what a service has to start: `guard --root ROOT -- ARGUMENTS OF THE AGENT`.
        updater: what a timer has to start: `update-once --root ROOT`.
        parent: stands in for both where there is no service manager; takes no arguments.
    """

    slot: Slot
    guard: Path
    updater: Path
    parent: Path


def bootstrap(
    root: StateRoot, artifact: Path | None, *, keys: tuple[str, ...], source: str, running: str = ""
) -> Installed:
    """Makes a release the active one of a state root that has none.

    Args:
        root: the state root; made 0700 where there is none.
        artifact: the tar.gz, with its signature beside it as `.minisig`; None for what runs now.
        keys: minisign public keys to pin, beside those that are pinned there.
        source: where requests for updates come from: `off`, `agentrelease`.
        running: the version of what runs now, where no artifact is given.

    Raises:
        UpdaterError: the release is refused, for the reasons of any update, or one is active already.
        ValueError: `updater.json` or `state.json` cannot be used.
        OSError: the root cannot be written.
    """
    root.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = Settings.load(root.updater_settings)
    tools = compose(root, settings, lambda _here, _total: None)
    check = compose_check(tools, settings)
    with FlockLocks().hold(root.update_lock):
        if artifact is not None:
            return install(tools, artifact, keys=keys, source=source, check=check)
        _prepare(tools, keys)
        slot = stage_snapshot(tools, lambda tree: lay_out_running(tree, running))
        return _complete(tools, slot, source=source, check=check)


def install(
    tools: Tools, artifact: Path, *, keys: tuple[str, ...], source: str, check: SelfCheck
) -> Installed:
    """As `bootstrap` of an artifact, over ports; the caller holds the lock."""
    _prepare(tools, keys)
    if not pinned_keys(tools) and not tools.allow_unsigned:
        raise RequestError(
            Reason.BAD_REQUEST,
            "no key is pinned here, so no release can be trusted",
            "Name the public key of whoever signs with --key FILE; a plane keeps its own as release.pub.",
        )
    return _complete(tools, _stage(tools, artifact), source=source, check=check)


def _prepare(tools: Tools, keys: tuple[str, ...]) -> None:
    _refuse_installed(tools)
    # The guard writes its attempts there, and the agent all else.
    tools.ensure_folder(tools.root.agent)
    _pin(tools, keys)


def _complete(tools: Tools, slot: Slot, *, source: str, check: SelfCheck) -> Installed:
    installed = _lay_launchers(tools, slot, check)
    tools.records.append(Step.COMMIT, slot, nonce=slot.nonce, sequence=slot.sequence)
    tools.records.save(StateDocument(Spec(source=source), Status(active=slot, sequence=slot.sequence)))
    finish_commit(tools, slot)
    retire(tools)
    tools.records.flush()
    return installed


def _refuse_installed(tools: Tools) -> None:
    active = tools.records.load().status.active
    if active is not None:
        raise RequestError(
            Reason.BAD_REQUEST,
            f"{active.version.spelled} is installed in {tools.root.path} already",
            "Publish an AgentRelease to update it, or choose another --state-root.",
        )


def _pin(tools: Tools, keys: tuple[str, ...]) -> None:
    tools.ensure_folder(tools.root.keys, mode=0o755)
    for text in keys:
        key = PublicKey.parse(text)
        path = tools.root.keys / f"{PublicKey.spell_id(key.key_id)}.pub"
        replace_durably(tools.files, path, key.to_file().encode(), mode=0o644)


def _stage(tools: Tools, artifact: Path) -> Slot:
    """Brings the release here by the steps of any update, and a second copy of it for the updater."""
    url = artifact.absolute().as_uri()
    with artifact.open("rb") as file:
        sha256 = Sha256(hashlib.file_digest(file, "sha256").hexdigest())
    request = UpdateRequest(_version_of(tools, artifact, url), url, sha256)
    promise = ask_for_promise(tools, request)
    fetched = fetch(tools, request, promise)
    if not is_staged(tools, promise.slot):
        stage(tools, promise.slot, fetched)
    return replace(promise.slot, nonce=tools.new_nonce())


def _version_of(tools: Tools, artifact: Path, url: str) -> VersionId:
    """The version by the signature, which nobody can forge; by the archive where unsigned ones may pass."""
    if tools.allow_unsigned:
        return read(artifact).manifest.version
    signature = tools.fetcher.fetch_bytes(signature_url(url), limit_bytes=LONGEST_SIGNATURE_BYTES)
    return tools.verifier.promise(signature, pinned_keys(tools), tools.clock.now()).version


def _lay_launchers(tools: Tools, slot: Slot, check: SelfCheck) -> Installed:
    root, copy = tools.root, lay_copy(tools, slot)
    manifest, _ = read_manifest(tools.files, copy)
    texts = render_launchers(
        root,
        str(copy),
        recorded_python=recorded_python(),
        lowest=manifest.python_min,
        highest=manifest.python_max,
    )
    for name, text in texts.items():
        replace_durably(tools.files, root.path / name, text.encode(), mode=0o755)
    # The release has said who it is; that its updater starts, too, must not show on a host far away.
    check.starts([root.updater_launcher])
    return Installed(slot, root.guard_launcher, root.updater_launcher, root.parent_launcher)
