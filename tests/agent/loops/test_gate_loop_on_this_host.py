"""The gate loop with every real part: sensors of this host, its clocks, files and the control socket."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from journeyman.adapters.control_socket import ControlSocket
from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.gate_trace import GateTrace
from journeyman.adapters.run_file import write_run_file
from journeyman.adapters.sensors.catalogue import Host, has_gpu, host_facts, sensors_for, work_directories
from journeyman.adapters.sensors.clocks import HostClocks
from journeyman.adapters.sensors.sweep import SensorSweep
from journeyman.adapters.system_clock import SystemClock
from journeyman.cli.gate import command as gate_command
from journeyman.cli.gates import command as gates_command
from journeyman.core.gates.host_class import host_class
from journeyman.core.gates.marks import DiskMarks, Marks
from journeyman.core.gates.specs import gate_specs
from journeyman.loops.gate_loop import GateLoop, HostGates
from journeyman_updater.contract import StateRoot
from tests.support.big_host import big_host_sensors
from tests.support.gates import NOON

pytestmark = pytest.mark.slow
# The machine that runs the tests may be nearly full; its memory and sensors are what is looked at.
MARKS = Marks(disk=DiskMarks(reserve_min_bytes=0, reserve_percent=0))


def composed(root: StateRoot) -> GateLoop:
    """The loop as the agent composes it."""
    host, clocks, directories = Host(), HostClocks(), work_directories(root.path)
    kind = host_class(host_facts(host), MARKS.host_class)
    sensors = sensors_for(host, kind, directories)
    trace = GateTrace(
        root.run / "gates-trace.jsonl", {"hostClass": kind, "workDirectories": list(directories)}
    )
    return GateLoop(
        clock=SystemClock(),
        clocks=clocks.both,
        sensors=SensorSweep(sensors),
        gates=HostGates(kind, gate_specs(kind, MARKS, list(directories), gpu=has_gpu(sensors)), MARKS),
        busy=lambda: False,
        forced=JsonFile(root.agent / "forced-gates.json"),
        publish=lambda report: write_run_file(root.run / "gates.json", report),
        record=lambda readings, boot, slept: trace.append(readings, boot_now=boot, slept_seconds=slept),
        changed=lambda: None,
    )


async def cli(command: object, *args: str) -> str:
    """Runs a command in a thread of its own, as another process would."""
    shown = await asyncio.to_thread(CliRunner().invoke, command, [*args])  # type: ignore[arg-type]
    assert shown.exit_code == 0, shown.exception
    return shown.output


def test_people_force_a_gate_of_a_running_agent_and_see_it(tmp_path: Path) -> None:
    """From real sensors over the file and the socket to the terminal, and back; then the ring is replayed."""

    async def play() -> None:
        root = StateRoot(tmp_path)
        loop = composed(root)
        async with ControlSocket(root, {"gate": loop.force_verb}, request_timeout_seconds=5):
            place = ("--state-root", str(tmp_path))
            async with asyncio.timeout(30):
                await loop.sweep()
                await loop.sweep()
                shown = json.loads(await cli(gates_command, "--json", *place))
                assert {"memory", "disk"} <= {gate["name"] for gate in shown["gates"]}
                told = [one["quality"] for one in shown["readings"] if one["name"] == "memory.available"]
                assert "ok" in told
                assert "memory: hold until" in await cli(
                    gate_command, "close", "memory", "--for", "2h", *place
                )
                assert "memory: Forced" in await cli(gates_command, *place)
                await cli(gate_command, "auto", "memory", *place)
                assert "Forced" not in loop.verdict().explanation()
        trace = str(tmp_path / "run" / "gates-trace.jsonl")
        assert "memory     hold -> open" in await cli(gates_command, "replay", trace)

    asyncio.run(play())


def test_a_full_sweep_of_a_big_host_is_cheap(tmp_path: Path) -> None:
    """40 zones with ten trips, 20 chips, 3 batteries and one program: under 30 ms of CPU."""
    sensors = big_host_sensors(tmp_path)
    sweep, spent = SensorSweep(sensors), []
    for number in range(20):
        begun = time.thread_time()
        found = sweep.run(boot_now=1000 + 60 * number, wall_now=NOON, tick_seconds=5)
        spent.append(time.thread_time() - begun)
    assert sum(one.name == "thermal.cpu_margin" for one in found) == 60
    assert sorted(spent[1:])[9] < 0.030
