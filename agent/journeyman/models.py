"""What `journeyman models` does: the store of a state root, and what of it is in use.

Needs no agent.  What servers have loaded is read from the records of their workers, which outlive agents.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from journeyman.adapters.model_store import FileModelStore
from journeyman.adapters.model_waste import Waste
from journeyman.core.model_source import is_source
from journeyman.errors import HostError, JourneymanError, ModelError, ModelFault, UsageError
from journeyman.model.model_file import CATALOGUE, ModelFile
from journeyman.settings import Settings
from journeyman_updater.contract import StateRoot, WorkerFolder, WorkerRecord

LOADED, CONFIGURED = "loaded", "configured"


@dataclass(frozen=True)
class Verdict:
    """What the verification of one model found.

    Attributes:
        name: what was asked for.
        fault: as in `ModelFault`, or `Unreadable` where the host cannot tell; empty if all is well.
        message: one line; empty if all is well.
        advice: what to do about it.
        model: what it is, where it could be read.
    """

    name: str
    fault: str
    message: str
    advice: str
    model: dict[str, Any] | None


class Models:
    """The models of one state root.

    Args:
        settings: where they lie, where they come from, and which of them are to be served.
        environ: the environment, for the cache of packages.

    Raises:
        HostError: we run as root and cannot become the owner of the store.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        _become_owner_of(settings.root)
        self._store = FileModelStore.of(settings, environ)

    def pull(
        self, wanted: str, tell: Callable[[str], None], *, name: str | None, digests: Sequence[str]
    ) -> dict[str, Any]:
        """Fetches a model by its source, or one of the catalogue by its name, and describes it.

        Raises:
            JourneymanError: see `FileModelStore.pull` and `obtain`.
        """
        if not is_source(wanted):
            if name is not None or digests or wanted not in CATALOGUE:
                raise UsageError(
                    f"{wanted!r} is no URL, or a name or digest was given with a built-in model",
                    f"Write https://... or hf://...; built in: {', '.join(CATALOGUE)}; for files `import`.",
                )
            return self.describe(self._store.obtain(wanted, tell))
        return self.describe(self._store.pull(wanted, tell, name=name, digests=digests))

    def take(
        self, path: Path, tell: Callable[[str], None], *, name: str | None, in_place: bool
    ) -> dict[str, Any]:
        """Takes a file or folder of this host, copied or where it lies.  Raises JourneymanError as `pull`."""
        if in_place:
            return self.describe(self._store.obtain(str(path), tell))
        source = f"{path.as_uri()}/" if path.is_dir() else path.as_uri()
        return self.describe(self._store.pull(source, tell, name=name))

    def listing(self) -> list[dict[str, Any]]:
        """All models with what their headers say, by name; one whose header is damaged without that."""
        return [self.describe(model) for model in self._store.models()]

    def describe(self, model: ModelFile) -> dict[str, Any]:
        """One model as JSON: where it lies, what it is, and who uses it."""
        described = {**asdict(model), "used_by": self._used_by(model), "facts": None}
        with contextlib.suppress(JourneymanError):
            facts = asdict(self._store.facts(model))
            described["facts"] = {_camel(key): value for key, value in facts.items()}
        return {_camel(key): value for key, value in described.items()}

    def verify(self, wanted: Sequence[str]) -> list[Verdict]:
        """Reads models as a whole and compares their digests; without names all that are here."""
        return [self._judged(one) for one in wanted or self._store.names()]

    def collect(self, forget: Sequence[str], *, parts: bool, dry_run: bool) -> Waste:
        """Forgets models by their names, and deletes what nothing refers to and nobody uses.

        Raises:
            ModelError: Missing, InUse; nothing was forgotten.
            HostError: the disk.
        """
        for name in forget:
            model = self._store.find(name)
            used_by = [] if model is None else self._used_by(model)
            if used_by:
                advice = {
                    LOADED: "End its server first: take it out of `models` and restart the agent.",
                    CONFIGURED: "Take it out of `models` in the settings first.",
                }
                raise ModelError(
                    f"model {name} is in use: {', '.join(used_by)}",
                    advice[used_by[0]],
                    fault=ModelFault.IN_USE,
                )
        if not dry_run:
            for name in forget:
                self._store.forget(name)
        loaded = _texts_of_running(self._settings.root)
        return self._store.collect(
            lambda digest: any(digest in text for text in loaded),
            parts=parts,
            dry_run=dry_run,
            forgotten=forget,
        )

    def _judged(self, wanted: str) -> Verdict:
        try:
            return Verdict(wanted, "", "", "", self.describe(self._store.verify(wanted)))
        except ModelError as error:
            return Verdict(wanted, error.fault, error.message, error.advice, None)
        except HostError as error:
            return Verdict(wanted, "Unreadable", error.message, error.advice, None)

    def _used_by(self, model: ModelFile) -> list[str]:
        used_by = []
        if any(model.sha256 in text or model.path in text for text in _texts_of_running(self._settings.root)):
            used_by.append(LOADED)
        if any(self._store.find(wanted) == model for wanted in self._settings.models):
            used_by.append(CONFIGURED)
        return used_by


def _texts_of_running(root: StateRoot) -> list[str]:
    """What the records and specs of all running workers say, as text: digests and paths are found in it.

    Only looks: cleaning up what a start has left is the agent's.
    """
    texts = []
    for path in root.workers.glob("*"):
        folder = WorkerFolder(path)
        with contextlib.suppress(OSError, ValueError):
            record = WorkerRecord.from_json(folder.record.read_bytes())
            if record.shim.is_running() or record.worker.is_running():
                texts.append(folder.record.read_text() + folder.spec.read_text())
    return texts


def _become_owner_of(root: StateRoot) -> None:
    """Lets root write as the user whose the store is, so that the agent can read what comes."""
    if os.geteuid() != 0:
        return
    owned = root.models if root.models.exists() else root.agent
    if not owned.exists() or (facts := owned.stat()).st_uid == 0:
        return
    try:
        os.setgroups([])
        os.setegid(facts.st_gid)
        os.seteuid(facts.st_uid)
    except OSError as error:
        raise HostError(
            f"cannot act as the owner of {owned}: {error.strerror}", "Run as that user."
        ) from error


def _camel(key: str) -> str:
    head, *tail = key.split("_")
    return head + "".join(word.capitalize() for word in tail)
