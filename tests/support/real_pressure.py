"""Runs the memory gate inside a real memory limit, beside a worker that eats it up; prints what happened.

    python real_pressure.py CGROUP

Joins the cgroup, starts a worker that allocates without end, and sheds it when the gate says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from journeyman.adapters.sensors.access import HostFiles
from journeyman.adapters.sensors.cgroup import ControlGroup
from journeyman.adapters.sensors.sweep import SensorSweep
from journeyman.core.gates.engine import started, sweep
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.ladder import Do, Job, next_actions
from journeyman.core.gates.marks import Marks, MemoryMarks
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.specs import gate_specs
from journeyman.core.gates.verdict import verdict
from journeyman.model.readings import Measurement, Quality
from tests.support.gates import NOON

# Two megabytes every fifty milliseconds towards 256: each tick of ten milliseconds sees every step.
GREEDY = """
import threading
never, eaten = threading.Event(), []
while True:
    eaten.append(bytearray(2 << 20))
    never.wait(0.05)
"""
MODEST = """
import threading
eaten = bytearray(32 << 20)
threading.Event().wait()
"""
LIMIT_TICKS = 3000
TICK_SECONDS = 0.01


class EachTick:
    """The cgroup sensor, asked at each tick."""

    name = "cgroup"
    period_seconds = 0.0

    def __init__(self) -> None:
        self._sensor = ControlGroup(HostFiles())

    def read(self) -> list[Measurement]:
        return self._sensor.read()


def main() -> None:
    Path(sys.argv[1], "cgroup.procs").write_text("0")
    marks = Marks(memory=MemoryMarks(open_dwell_seconds=0.2))
    specs = [spec for spec in gate_specs(HostClass.CONTAINER, marks, []) if spec.name == "memory"]
    sensors, engine = SensorSweep([EachTick()]), started(specs, time.monotonic())
    modest = subprocess.Popen([sys.executable, "-S", "-c", MODEST])
    jobs = [
        Job("modest", time.monotonic(), ram_bytes=32 << 20),
        Job("greedy", time.monotonic(), ram_bytes=128 << 20),
    ]
    worker: subprocess.Popen[bytes] | None = None
    levels: list[str] = []
    shed: list[str] = []
    never = threading.Event()
    for _ in range(LIMIT_TICKS):
        now = time.monotonic()
        readings = sensors.run(boot_now=now, wall_now=NOON, tick_seconds=1)
        assert all(one.quality is Quality.OK for one in readings)
        engine, _ = sweep(engine, readings, marks, Clocks(now, now))
        level = engine.states["memory"].level.name
        if worker is None and level == "OPEN":
            worker = subprocess.Popen([sys.executable, "-S", "-c", GREEDY])
        if worker is not None and levels[-1:] != [level]:
            levels.append(level)
        found = verdict(specs, engine.states, {}, boot_now=now, wall_now=NOON)
        for action in next_actions([one for one in jobs if one.job_id not in shed], found, now, marks.ladder):
            assert action.do is Do.KILL
            shed.append(action.job_id)
            victim = worker if action.job_id == "greedy" else modest
            assert victim is not None
            victim.kill()
        if shed and level == "OPEN":
            break
        never.wait(TICK_SECONDS)
    assert worker is not None
    worker.kill()
    survived = modest.poll() is None
    modest.kill()
    modest.wait()
    result = {"levels": levels, "shed": shed, "signal": -worker.wait(), "modest_survived": survived}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
