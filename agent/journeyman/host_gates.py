"""Composes the admission gates of this host and those who act on them.

The sensors with their marks, and where both are written down; the host lane; the ladder of running work; what
keeps the host awake meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from journeyman.adapters.caffeinate import Caffeinate
from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.gate_trace import GateTrace
from journeyman.adapters.host_witness import HostWitness
from journeyman.adapters.run_file import write_run_file
from journeyman.adapters.sensors.access import HostFiles, run_command
from journeyman.adapters.sensors.catalogue import (
    Host,
    has_gpu,
    host_facts,
    knows_link,
    sensors_for,
    work_directories,
)
from journeyman.adapters.sensors.clocks import HostClocks
from journeyman.adapters.sensors.sweep import SensorSweep
from journeyman.adapters.termux_wake_lock import TermuxWakeLock
from journeyman.core.gates.host_class import HostClass, host_class
from journeyman.core.gates.marks import marks_from
from journeyman.core.gates.room import room
from journeyman.core.gates.specs import gate_specs
from journeyman.core.holds import Holds, Owner
from journeyman.core.lane_queue import Offer
from journeyman.loops.gate_loop import GateLoop, HostGates
from journeyman.loops.keep_awake import KeepAwake
from journeyman.loops.ladder_loop import Ladder, RunsWork
from journeyman.loops.lane_loop import LaneLoop
from journeyman.model.readings import Reading
from journeyman.ports import Clock, JsonObject, SleepAssertion, Workers
from journeyman.settings import Settings


def gates_of_this_host(
    settings: Settings,
    clock: Clock,
    *,
    busy: Callable[[], bool],
    changed: Callable[[], None],
    judged: Callable[[], None],
    slept: Callable[[], None],
) -> GateLoop:
    """The gates, not yet running.

    Args:
        settings: the state root, and the marks that differ from their defaults.
        clock: time.
        busy: whether work runs at this moment.
        changed: called when what the node says of its gates has changed.
        judged: called when there is a new verdict: after each sweep, and each word of a person.
        slept: called after the first sweep that has noticed a sleep of the host.

    Raises:
        ConfigError: a mark does not exist, or has no such value.
    """
    root = settings.root
    marks = marks_from(settings.gates, "the table [gates]")
    host = Host(busy=busy)
    kind, places = host_class(host_facts(host), marks.host_class), work_directories(root.path)
    sensors = sensors_for(host, kind, places, sidecar_file=marks.sidecar_file)
    specs = gate_specs(kind, marks, list(places), gpu=has_gpu(sensors), link=knows_link(sensors))
    trace = GateTrace(root.run / "gates-trace.jsonl", {"hostClass": kind, "workDirectories": list(places)})

    def publish(report: JsonObject) -> None:
        try:
            write_run_file(root.run / "gates.json", report)
        finally:
            judged()

    def record(readings: Sequence[Reading], boot_now: float, slept_seconds: float) -> None:
        trace.append(readings, boot_now=boot_now, slept_seconds=slept_seconds)
        if slept_seconds:
            slept()

    return GateLoop(
        clock=clock,
        clocks=HostClocks().both,
        sensors=SensorSweep(sensors),
        gates=HostGates(kind, specs, marks),
        busy=busy,
        forced=JsonFile(root.agent / "forced-gates.json"),
        publish=publish,
        record=record,
        changed=changed,
    )


def lane_of_this_host(
    settings: Settings,
    clock: Clock,
    workers: Workers,
    gates: GateLoop,
    *,
    holds: Callable[[], Holds],
    changed: Callable[[], None],
) -> LaneLoop:
    """The host lane.

    Args:
        settings: how many jobs at a time, the marks, the state root that jobs write below.
        clock: time.
        workers: the processes.
        gates: of this host.
        holds: who keeps work away now.
        changed: called when a job has begun or ended.
    """
    marks, places = (
        marks_from(settings.gates, "the table [gates]"),
        list(work_directories(settings.root.path)),
    )
    cpus = float(os.cpu_count() or 1)

    def offer() -> Offer:
        # What the gates ask for is in the verdict, with its reasons.
        others = holds().without(Owner.GATE)
        left = room(gates.readings(), marks, places, cpus=cpus, slots=settings.max_lane_jobs)
        return Offer(left, gates.verdict(), others)

    return LaneLoop(
        workers=workers,
        clock=clock,
        settings=settings,
        offer=offer,
        marks=marks.admission,
        witness=HostWitness(
            HostFiles(),
            run_command,
            host=gates.host,
            readings=gates.readings,
            slept_seconds=gates.slept_total_seconds,
        ),
        changed=changed,
    )


def keep_awake_of_this_host(settings: Settings, gates: GateLoop, *, busy: Callable[[], bool]) -> KeepAwake:
    """What keeps a Mac or a phone awake while work runs; the others are left to their owners."""
    assertion: SleepAssertion | None = None
    if gates.host.is_mac:
        assertion = Caffeinate()
    elif gates.host is HostClass.PHONE_PROOT:
        marks = marks_from(settings.gates, "the table [gates]")
        assertion = TermuxWakeLock(Path(marks.sidecar_file).parent)
    return KeepAwake(
        assertion=assertion,
        busy=busy,
        readings=gates.readings,
        has_battery=gates.host is not HostClass.MAC_DESKTOP,
    )


def ladder_of_this_host(settings: Settings, gates: GateLoop, runners: Sequence[RunsWork]) -> Ladder:
    """The ladder for all work that runs on this host."""
    return Ladder(
        runners=runners,
        verdict=gates.verdict,
        boot_now=HostClocks().boot,
        marks=marks_from(settings.gates, "the table [gates]").ladder,
        phone=gates.host.is_phone,
        promised=gates.promise,
    )
