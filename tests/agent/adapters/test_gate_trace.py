"""The ring of readings, and files of the running agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from journeyman.adapters.gate_trace import GateTrace
from journeyman.adapters.run_file import write_run_file
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.replay import replay
from journeyman.errors import HostError
from journeyman.model.readings import Reading
from tests.support.gates import reading

HEAD = {"hostClass": "container", "workDirectories": ["state"]}


def sample(at: float, available: float = 8e9) -> list[Reading]:
    return [reading("memory.available", available, at=at), reading("memory.total", 16e9, at=at)]


def test_what_was_recorded_can_be_replayed(tmp_path: Path) -> None:
    """The ring's lines lead the same gates to the same transitions."""
    trace = GateTrace(tmp_path / "trace.jsonl", HEAD)
    for at in range(0, 60, 5):
        trace.append(sample(at, 8e9 if at < 40 else 1e8), boot_now=at)
    lines = (tmp_path / "trace.jsonl").read_text().splitlines()
    found = [
        (one.at_seconds, one.transition.after.name)
        for one in replay(lines, Marks())
        if one.transition.gate == "memory"
    ]
    assert found == [(5, "OPEN"), (40, "KILL")]


def test_readings_that_did_not_change_are_not_written_again(tmp_path: Path) -> None:
    """A slow sensor's reading is in the ring once."""
    trace = GateTrace(tmp_path / "trace.jsonl", HEAD)
    trace.append(sample(0), boot_now=0)
    trace.append(sample(0), boot_now=5)
    assert len((tmp_path / "trace.jsonl").read_text().splitlines()) == 2


def test_the_ring_is_bounded_in_time_and_bytes(tmp_path: Path) -> None:
    """Two halves, and each begins with all readings, so that it can be replayed alone."""
    path = tmp_path / "trace.jsonl"
    trace = GateTrace(path, HEAD, ring_seconds=100, ring_bytes=20_000)
    for at in range(0, 1000, 5):
        trace.append(sample(at), boot_now=at)
    halves = [path.read_text().splitlines(), (tmp_path / "trace.jsonl.1").read_text().splitlines()]
    assert sum(len(half) for half in halves) <= 2 * (50 // 5 + 2)
    for half in halves:
        assert json.loads(half[0]) == HEAD
        assert len(json.loads(half[1])["readings"]) == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["trace.jsonl", "trace.jsonl.1"]


def test_the_next_agent_goes_on_in_the_ring(tmp_path: Path) -> None:
    """A restart keeps the past, and the replay tells lives apart, also over a boot."""
    path = tmp_path / "trace.jsonl"
    first = GateTrace(path, HEAD)
    for at in (9000, 9005):
        first.append(sample(at), boot_now=at)
    second = GateTrace(path, HEAD)
    for at in (10, 15):
        second.append(sample(at), boot_now=at)
    found = [one for one in replay(path.read_text().splitlines(), Marks()) if one.transition.gate == "memory"]
    assert [one.at_seconds for one in found] == [9005, 15]


def test_a_ring_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    """A look back is not worth an agent."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    GateTrace(blocked / "trace.jsonl", HEAD).append(sample(0), boot_now=0)
    assert blocked.read_text() == ""


def test_a_run_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """No temporary file is left, and others may read it."""
    path = tmp_path / "run" / "gates.json"
    for number in range(3):
        write_run_file(path, {"n": number})
    assert json.loads(path.read_text()) == {"n": 2}
    assert [one.name for one in path.parent.iterdir()] == ["gates.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_run_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"gates\.json"):
        write_run_file(tmp_path / "file" / "gates.json", {})
