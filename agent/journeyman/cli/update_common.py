"""What the commands below `journeyman update` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from journeyman.errors import ConfigError, ControlPlaneError, JourneymanError
from journeyman.settings import Loaded
from journeyman_updater.run import Slot, SourceError, Updater, UpdaterError, open_updater

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def updater_of(loaded: Loaded) -> Updater:
    """The updater of the state root that was named."""
    return open_updater(loaded.settings.root)


def facts_of(slot: Slot | None) -> dict[str, Any] | None:
    """A release, for JSON."""
    return {"version": slot.version.spelled, "sha256": slot.sha256} if slot else None


def explain(error: UpdaterError) -> JourneymanError:
    """An error of the updater with the exit code that docs/exit-codes.md gives it."""
    kind = ControlPlaneError if isinstance(error, SourceError) else JourneymanError
    return kind(f"{error.reason}: {error.message}", error.advice)


@contextmanager
def explained() -> Iterator[None]:
    """Gives the updater's errors their exit codes."""
    try:
        yield
    except UpdaterError as error:
        raise explain(error) from error
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
