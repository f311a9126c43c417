"""What restarts of the agent cost on each service manager, while a client streams from its model server.

Downtime is the time in which the control socket answers for no agent: from the last answer of the old one
to the first of the new one.  launchd is left out, as there is only a stand-in for it here.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks.figures import Figure, median_of
from tests.support.survival import TOKENS, Survived, survive
from tests.support.survival_on_systemd import container_for_survival, survive_inside

LONGEST_DOWNTIME_SECONDS = 2.0


def measure() -> list[Figure]:
    """Takes about two minutes; what cannot be had here is named on standard error and left out."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="journeyman-bench-") as name:
        for service in ("none", "runit"):
            figures += _figures(service, survive(service, Path(name, service)))
    if os.geteuid() != 0:
        sys.stderr.write("systemd is left out: only root boots its container\n")
        return figures
    try:
        with container_for_survival() as container:
            for service in ("systemd", "systemd-user"):
                figures += _figures(service, survive_inside(container, service))
    except pytest.skip.Exception as reason:
        sys.stderr.write(f"systemd is left out: {reason}\n")
    return figures


def _figures(service: str, seen: Survived) -> list[Figure]:
    budget = LONGEST_DOWNTIME_SECONDS
    return [
        median_of(f"{service}: downtime in a restart", seen.restarts, "s", budget),
        Figure(f"{service}: downtime in an update", seen.update, "s", budget),
        Figure(f"{service}: downtime in a rollback", seen.rollback, "s", budget),
        Figure(f"{service}: tokens lost of a stream of {TOKENS}", TOKENS - seen.tokens, "", 0),
        Figure(f"{service}: model servers loaded again", 0 if seen.is_same_server else 1, "", 0),
    ]
