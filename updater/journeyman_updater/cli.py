"""`python -m journeyman_updater --root ROOT`: one run of the updater, for timers and the parent."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from journeyman_updater.contract import ExitCode, StateRoot
from journeyman_updater.errors import UpdaterError
from journeyman_updater.run import Ending, Outcome, open_updater

_FAILED = {Ending.REFUSED, Ending.ROLLED_BACK}


def main(arguments: list[str] | None = None) -> int:
    """Runs the updater once.

    Returns:
        0 if nothing failed; 1 if an update was refused or undone, or could not be tried now; 78 for a
        setting that is wrong.
    """
    parser = argparse.ArgumentParser(prog="journeyman-updater", description="Run the updater once.")
    parser.add_argument("--root", required=True, type=Path, help="the state root")
    parser.add_argument("--first-run", action="store_true", help="do all of a run but for what is asked for")
    options = parser.parse_args(arguments)
    root = StateRoot(options.root.resolve())
    try:
        updater = open_updater(root)
    except ValueError as error:
        sys.stderr.write(f"journeyman-updater: {error}\n")
        return ExitCode.BAD_CONFIG
    try:
        outcome = updater.first_run() if options.first_run else updater.run_once()
    except UpdaterError as error:
        sys.stderr.write(f"journeyman-updater: {error.reason}: {error.message}  {error.advice}\n")
        return 1
    sys.stdout.write(describe(outcome) + "\n")
    return 1 if outcome.ending in _FAILED else 0


def describe(outcome: Outcome) -> str:
    """One line of JSON."""
    value = {
        "ending": outcome.ending,
        "version": outcome.slot.version.spelled if outcome.slot else None,
        "sha256": outcome.slot.sha256 if outcome.slot else None,
        "reason": outcome.reason,
        "message": outcome.message,
        "advice": outcome.advice,
    }
    return json.dumps(value)
