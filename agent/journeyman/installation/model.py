"""What is asked of an installation, what it reports, and what its errors mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import journeyman_updater.installation as updater
from journeyman.errors import ArtifactError, ConfigError, HostError
from journeyman.settings import Settings
from journeyman_updater.contract import StateRoot

Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What is to be installed.

    Attributes:
        settings: of the agent; `token_file` and `ca_file` are copied.
        target: where it goes, see `journeyman_updater`.
        artifact: the first release; None for what runs now, where there is none yet.
        keys: public keys to pin, in minisign's format.
        allow_unsigned: whether a release without a signature may pass.
        deadline_seconds: for the agent to be READY, and again for its heartbeat to show.
    """

    settings: Settings
    target: updater.Target
    artifact: Path | None = None
    keys: tuple[str, ...] = ()
    allow_unsigned: bool = False
    deadline_seconds: float = 90.0


@dataclass
class Report:
    """What was done.

    Attributes:
        node: the name of the FleetNode; empty where the agent does not run yet, see `next_step`.
        version: that runs.
        service: which service manager keeps it.
        starts: `boot`, `login`, `runsvdir`, `termux` or `never`.
        changes: one line each; empty if all was as it has to be.
        next_step: what a person does elsewhere before the agent can run, or an empty string.
    """

    node: str = ""
    version: str = ""
    service: str = ""
    starts: str = ""
    changes: list[str] = field(default_factory=list)
    next_step: str = ""


@contextmanager
def explained(root: StateRoot) -> Iterator[None]:
    """Gives the updater's errors, and those of the file system, their exit codes."""
    try:
        yield
    except updater.UpdaterError as error:
        is_ours = isinstance(error, updater.HostError | updater.RestartError)
        raise (HostError if is_ours else ArtifactError)(
            f"{error.reason}: {error.message}", error.advice
        ) from error
    except OSError as error:
        raise HostError(
            f"{root.path} cannot be used: {error.strerror or error}",
            "Choose another one with --state-root, or mend its permissions.",
        ) from error
    except ValueError as error:
        raise ConfigError(str(error), "Mend that file, or remove it.") from error
