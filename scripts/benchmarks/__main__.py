"""`scripts/bench PART [--check] [--json]`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from dataclasses import asdict

import structlog

from benchmarks.figures import Figure

PARTS = {
    "footprint": "memory, CPU, wake-ups and requests of an idle agent",
    "wire": "writes, requests and bytes of an agent, as its plane counts them",
    "start": "time from the start of the agent to READY and its first beat, and of a model until it is ready",
    "faults": "time from READY until an agent says what is wrong with each of seven damaged model files",
    "update": "staging, bytes, downtime, approval to HEALTHY and rollback of an update",
    "gates": "a verdict from the cache, a sweep of a big host, and wake-ups on battery",
    "restart": "downtime of the agent and tokens lost by restarts and updates, for each service manager",
    "proxy": "first token, tokens/s and cancellations through the proxy, against the model server itself",
    "plane": "the PATCH of a heartbeat and the CPU for each node in the plane, with 10 and with 1,000 nodes",
    "lane": "what `journeyman lane run` adds to a command that is admitted at once",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures one part: " + "; ".join(f"{name}: {what}" for name, what in PARTS.items()),
        epilog="Example: scripts/bench start --check",
    )
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure misses its budget")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    # A plane in this process logs, and standard output is for the figures.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    # Compiled modules are what users run; without them each start would be a first start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    figures: list[Figure] = importlib.import_module(f"benchmarks.{chosen.part}").measure()
    if chosen.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        _print(figures)
    missed = [figure.name for figure in figures if not figure.within_budget]
    if missed:
        print(f"over budget: {', '.join(missed)}", file=sys.stderr)
    sys.exit(1 if chosen.check and missed else 0)


def _print(figures: list[Figure]) -> None:
    for figure in figures:
        budget = "" if figure.budget is None else f"  (budget {figure.budget:g})"
        spread = "" if figure.spread is None else f"  [{figure.spread[0]:g} to {figure.spread[1]:g}]"
        print(f"{figure.name:<42} {figure.value:>10g} {figure.unit}{spread}{budget}")


main()
