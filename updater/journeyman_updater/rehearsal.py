"""Rehearses an update on this host: real guard, parent and updater, and releases that only pretend.

A good release, one that crashes and one that hangs are tried one after the other in a state root of their
own, with short deadlines.  The agent and the state root of this host are not touched; nothing stays behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import FrameType

from journeyman_updater import guard, parent
from journeyman_updater.adapters.artifact_facts import request_for
from journeyman_updater.adapters.dummy_release import build_dummy
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.contract import StateRoot
from journeyman_updater.core.launcher import render_launcher
from journeyman_updater.errors import HostError, Reason, UpdaterError
from journeyman_updater.model.state import Spec, StateDocument, Status
from journeyman_updater.run import Ending, Updater, compose
from journeyman_updater.settings import Settings
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.fetch import ask_for_promise, fetch
from journeyman_updater.steps.stage import stage

# What callers need to speak of it.
__all__ = ["Scene", "UpdaterError", "rehearse"]

_LIBRARY = Path(guard.__file__).parent.parent
_READY_SECONDS = 2.0
_START_SECONDS = 30.0
_SETTINGS = Settings(
    start_seconds=_START_SECONDS,
    ready_margin_seconds=1,
    beat_seconds=3,
    accept_seconds=5,
    soak_seconds=1,
    patience_seconds=5,
    drain_seconds=2,
    stop_seconds=5,
    proof_seconds=_START_SECONDS,
    poll_seconds=0.1,
)
_SCENES = (
    ("2.0.0", "good", Ending.COMMITTED, None),
    ("3.0.0", "crash", Ending.ROLLED_BACK, Reason.CRASH_LOOP),
    ("4.0.0", "hang", Ending.ROLLED_BACK, Reason.NOT_READY),
)


@dataclass(frozen=True)
class Scene:
    """One release that was tried.

    Attributes:
        behaviour: of the release: `good`, `crash` or `hang`.
        ending: how its update ended.
        reason: why it was undone, or None.
        seconds: from the request to the end.
        starts: how often it was started.
        is_as_expected: whether that is what has to happen.
        message: one line for people.
    """

    behaviour: str
    ending: Ending
    reason: Reason | None
    seconds: float
    starts: int
    is_as_expected: bool
    message: str


def rehearse(folder: Path | None) -> Iterator[Scene]:
    """Tries the three releases, and yields each as it ends.

    Args:
        folder: where the scratch root is made, so that its file system is rehearsed with, too; the folder
            for temporary files if it is None.

    Raises:
        UpdaterError: this host cannot even run the first release, for the reason given.
        OSError: the scratch root cannot be written.
    """
    with _terminated_in_order(), tempfile.TemporaryDirectory(prefix="rehearsal-", dir=folder) as scratch:
        place, key = Path(scratch), SecretKey.generate()
        # A space, as in the paths of macOS.
        root = StateRoot(place / "state root")
        root.path.mkdir(mode=0o700)
        tools = compose(root, _SETTINGS, lambda _here, _total: None)
        expires = tools.clock.now() + timedelta(days=1)
        first = build_dummy(place, _LIBRARY, "1.0.0", "good", sequence=1, key=key, expires=expires)
        _install(tools, first, key)
        with _kept(tools, place):
            for sequence, (version, behaviour, ending, reason) in enumerate(_SCENES, start=2):
                artifact = build_dummy(
                    place, _LIBRARY, version, behaviour, sequence=sequence, key=key, expires=expires
                )
                yield _try(tools, artifact, behaviour, (ending, reason))


def _install(tools: Tools, artifact: Path, key: SecretKey) -> None:
    """Makes the first release the active one, by the steps of any update but for the trial."""
    spec = Spec(keys=(key.public.to_line(),), ready_seconds=_READY_SECONDS)
    tools.records.save(StateDocument(spec))
    request = request_for(artifact)
    promise = ask_for_promise(tools, request)
    stage(tools, promise.slot, fetch(tools, request, promise))
    active = replace(promise.slot, nonce=tools.new_nonce())
    tools.records.save(StateDocument(spec, Status(active=active, sequence=active.sequence)))


@contextlib.contextmanager
def _kept(tools: Tools, place: Path) -> Iterator[None]:
    """Keeps the agent running, and ends it and its parent whatever happens."""
    root = tools.root
    for folder in (root.run, root.agent):
        folder.mkdir(mode=0o700, exist_ok=True)
    for launcher, module in ((root.guard_launcher, guard), (root.parent_launcher, parent)):
        launcher.write_text(render_launcher(str(module.__file__), recorded_python=sys.executable))
        launcher.chmod(0o755)
    path = str(root.path)
    command = [str(root.parent_launcher), "--root", path, "--guard", str(root.guard_launcher)]
    with (place / "log").open("wb") as log:
        # A session of its own: Ctrl-C is for us, and we stop it in good order.
        keeper = subprocess.Popen(
            [*command, "--", "run", path],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_for_first(tools, place / "log")
        yield
    finally:
        _stop(keeper, tools)


def _wait_for_first(tools: Tools, log: Path) -> None:
    deadline = tools.seconds() + _START_SECONDS
    while tools.running_report()[1] is None:
        if tools.seconds() >= deadline:
            said = " ".join(log.read_text(errors="replace").split())[-300:]
            raise HostError(
                Reason.SELF_UPDATE_UNAVAILABLE,
                f"no release reported within {_START_SECONDS:.0f} s: {said or 'it said nothing'}",
                "Look at what forbids programs below the state root to run.",
            )
        tools.clock.wait(tools.limits.poll)


def _stop(keeper: subprocess.Popen[bytes], tools: Tools) -> None:
    keeper.terminate()
    try:
        keeper.wait(timeout=_SETTINGS.stop_seconds)
    except subprocess.TimeoutExpired:
        agent = tools.manager.running()
        keeper.kill()
        keeper.wait()
        if agent is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGKILL)


def _try(tools: Tools, artifact: Path, behaviour: str, expected: tuple[Ending, Reason | None]) -> Scene:
    began = tools.seconds()
    outcome = Updater(tools.root, _SETTINGS).apply_file(artifact)
    nonce = outcome.slot.nonce if outcome.slot else ""
    starts = sum(item.event == "start" and item.nonce == nonce for item in tools.records.attempts())
    return Scene(
        behaviour=behaviour,
        ending=outcome.ending,
        reason=outcome.reason,
        seconds=tools.seconds() - began,
        starts=starts,
        is_as_expected=(outcome.ending, outcome.reason) == expected,
        message=outcome.message,
    )


@contextlib.contextmanager
def _terminated_in_order() -> Iterator[None]:
    """Lets SIGTERM end us as an exception does, so that what was started is stopped."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
