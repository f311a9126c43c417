"""What a run of the updater would do with a request, found out without changing anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from journeyman_updater.core.allowances import allowance_for
from journeyman_updater.core.requests import Grant, decide
from journeyman_updater.errors import PostponedError, Reason, UpdaterError
from journeyman_updater.model.release import Slot, UpdateRequest
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.fetch import Promise, ask_for_promise
from journeyman_updater.steps.permit import Permit
from journeyman_updater.steps.tree import is_valid


class Prospect(StrEnum):
    """What the next run would do."""

    OFF = "off"
    """This host does not follow its control plane."""
    NOTHING = "nothing"
    """Nothing is asked for."""
    NOT_NEEDED = "not_needed"
    """The release that is asked for runs already, or is on trial."""
    WAITS = "waits"
    """Another trial, the window or a gate comes first."""
    REFUSED = "refused"
    """It would be refused."""
    UPDATES = "updates"
    """It would be fetched and tried."""


@dataclass(frozen=True)
class Forecast:
    """The answer.

    Attributes:
        prospect: see `Prospect`.
        slot: the release that is asked for, or None.
        reason: a reason code, or None.
        message: one line for people.
        advice: what to do about it, or an empty string.
        bytes_to_fetch: how much of the artifact is not here, or None if nobody knows or nothing is fetched.
        turn_seconds: how long this host would wait for its turn.
    """

    prospect: Prospect
    slot: Slot | None = None
    reason: Reason | None = None
    message: str = ""
    advice: str = ""
    bytes_to_fetch: int | None = None
    turn_seconds: float = 0.0


def forecast(tools: Tools, request: UpdateRequest, permit: Permit) -> Forecast:
    """Asks every question that comes before anything stops, but for those that need the artifact.

    What would be refused is said before what only has to wait.
    """
    slot = Slot(request.version, request.sha256)
    try:
        document = tools.records.load()
        if allowance_for(request, document.status, tools.records.history(), tools.clock.now()):
            document = replace(document, status=document.status.allowing(request.sha256))
        grant = decide(request, document)
        if grant is Grant.NOT_NEEDED:
            return Forecast(
                Prospect.NOT_NEEDED, slot, message="these very bytes run already, or are on trial"
            )
        if grant is Grant.LATER:
            return Forecast(Prospect.WAITS, slot, message="another release is on trial and is judged first")
        promise = ask_for_promise(tools, request)
        is_here = is_valid(tools.files, tools.tree(slot), slot.sha256)
        if not is_here and tools.files.is_directory(tools.root.versions):
            tools.check_room(tools.root.versions, promise.size or 0)
        permit.start()
        if not is_here:
            permit.fetch()
    except PostponedError as error:
        return Forecast(Prospect.WAITS, slot, error.reason, error.message, error.advice)
    except UpdaterError as error:
        return Forecast(Prospect.REFUSED, slot, error.reason, error.message, error.advice)
    return Forecast(Prospect.UPDATES, slot, bytes_to_fetch=0 if is_here else _missing(tools, promise))


def _missing(tools: Tools, promise: Promise) -> int | None:
    if promise.size is None:
        return None
    artifact = tools.root.downloads / f"{promise.slot.sha256}.tar.gz"
    here = tools.files.size(artifact) or tools.files.size(artifact.with_name(artifact.name + ".part")) or 0
    return max(0, promise.size - here)
