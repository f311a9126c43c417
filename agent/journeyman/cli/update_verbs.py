"""The verbs of `journeyman update` about releases: which one runs here, what was tried, what may be next."""

from __future__ import annotations

from pathlib import Path

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import local_flags
from journeyman.cli.update_common import JSON, explained, facts_of, updater_of
from journeyman.errors import JourneymanError, UsageError
from journeyman.settings import Loaded
from journeyman_updater.run import Ending, Outcome, VersionId, parse_sha256


@click.command(epilog="Example: journeyman update status")
@JSON
@local_flags
def status(*, loaded: Loaded, as_json: bool) -> None:
    """Show the active, previous and tried release, the pin, and what was rejected or undone."""
    with explained():
        updater = updater_of(loaded)
        document, history, checked = updater.document(), updater.history(), updater.last_check()
    known = document.status
    undone = [(item, updater.next_try(item)) for item in known.undone]
    slots = {"active": known.active, "trial": known.trial, "previous": known.previous}
    last = history[-1].to_line() if history else None
    if as_json:
        print_json(
            {
                **{name: facts_of(slot) for name, slot in slots.items()},
                "rejected": [vars(item) for item in known.rejected],
                "undone": [
                    {
                        **{name: getattr(item, name) for name in ("version", "sha256", "reason", "times")},
                        "nextTrySeconds": None if left is None else round(left),
                    }
                    for item, left in undone
                ],
                "pin": document.spec.pin,
                "window": document.spec.window,
                "source": document.spec.source,
                "lastCheck": checked.isoformat(timespec="seconds") if checked else None,
                "last": last,
            }
        )
        return
    rows = [(name, slot.version.spelled, str(slot.sha256), "") for name, slot in slots.items() if slot]
    rows += [("rejected", item.version, item.sha256, item.reason) for item in known.rejected]
    rows += [("undone", item.version, item.sha256, item.reason) for item, _ in undone]
    print_table(("release", "version", "sha256", "reason"), rows)
    for item, left in undone:
        print(_next_try(item.version, item.sha256, item.times, left))
    spec = document.spec
    print(f"source {spec.source}, pin {spec.pin or '-'}, window {spec.window or '-'}")
    print(f"last check {checked:%Y-%m-%d %H:%M:%S}" if checked else "last check: none since the boot")
    if last:
        print(f"last step: {last['step']} {last['release']} at {last['at']}")


@click.command(epilog="Example: journeyman update history --json")
@JSON
@local_flags
def history(*, loaded: Loaded, as_json: bool) -> None:
    """Show the journal: each step of each update, oldest first."""
    with explained():
        records = [record.to_line() for record in updater_of(loaded).history()]
    if as_json:
        print_json(records)
        return
    columns = ("seq", "at", "step", "release", "attempt", "detail")
    print_table(columns, [[record[name] for name in columns] for record in records])


@click.command(epilog="Example: journeyman update apply ./journeyman-0.4.1-linux-amd64.tar.gz")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@JSON
@local_flags
def apply(*, loaded: Loaded, file: Path, as_json: bool) -> None:
    """Update to the release in FILE, whose signature lies beside it as FILE.minisig.

    Exits with 1 if it was refused, or tried and undone.
    """
    with explained():
        outcome = updater_of(loaded).apply_file(file)
    _show(outcome, as_json=as_json)
    if outcome.ending in {Ending.REFUSED, Ending.ROLLED_BACK}:
        raise JourneymanError(f"{outcome.reason}: {outcome.message}", outcome.advice)


@click.command(epilog="Example: journeyman update rollback")
@JSON
@local_flags
def rollback(*, loaded: Loaded, as_json: bool) -> None:
    """End an open trial, or put the previous release on trial and keep it if it is good.

    Restarts the agent.  Exits with 1 if the release that was asked for does not run in the end.
    """
    with explained():
        updater = updater_of(loaded)
        had_trial = updater.document().status.trial is not None
        outcome = updater.rollback()
    _show(outcome, as_json=as_json)
    if outcome.ending is not (Ending.ROLLED_BACK if had_trial else Ending.COMMITTED):
        raise JourneymanError(f"{outcome.reason}: {outcome.message}", outcome.advice)


@click.command(epilog="Example: journeyman update pin 0.4.1")
@click.argument("version")
@local_flags
def pin(*, loaded: Loaded, version: str) -> None:
    """Let only this VERSION be installed here, until `journeyman update unpin`."""
    try:
        wanted = VersionId(version)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with explained():
        updater_of(loaded).pin(wanted)


@click.command(epilog="Example: journeyman update unpin")
@local_flags
def unpin(*, loaded: Loaded) -> None:
    """Let this host move to other versions again."""
    with explained():
        updater_of(loaded).pin(None)


@click.command(epilog="Example: journeyman update allow SHA256")
@click.argument("sha256")
@local_flags
def allow(*, loaded: Loaded, sha256: str) -> None:
    """Let a rejected or undone release be tried again; SHA256 is what `journeyman update status` shows."""
    try:
        wanted = parse_sha256(sha256)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with explained():
        updater_of(loaded).allow(wanted)


def _next_try(version: str, sha256: str, times: int, left: float | None) -> str:
    if left is None:
        return (
            f"{version} was undone {times} times by no fault of its own, and is tried no more until "
            f"`journeyman update allow {sha256}` or a new request"
        )
    when = f"in {left / 60:.0f} min" if left else "at the next run of the updater"
    return f"{version} was undone by no fault of its own, and is tried again {when} if it is still asked for"


def _show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        facts = facts_of(outcome.slot)
        print_json({"ending": outcome.ending, "release": facts, "reason": outcome.reason})
    elif outcome.slot:
        print(f"{outcome.ending} {outcome.slot.version.spelled}")
