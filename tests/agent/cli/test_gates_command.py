"""`journeyman gates` and `journeyman gate` at the terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from journeyman.cli.gate import command as gate_command
from journeyman.cli.gates import command, read_gates_file, read_marks
from journeyman.core.gates.engine import judged, started, sweep
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.report import report
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.specs import gate_specs
from journeyman.errors import ConfigError, HostError, JourneymanError, UsageError
from tests.support.gates import reading

TRACE = """{"hostClass": "linux-laptop"}
{"t": 0, "set": {"thermal.cpu_margin": 30}}
{"t": 5, "set": {"thermal.cpu_margin": 30}}
{"t": 10, "set": {"thermal.cpu_margin": 8}}
{"t": 40, "set": {"thermal.cpu_margin": 8}}
"""


def written(root: Path, margin: float) -> None:
    """A report as the agent writes it, ten seconds old."""
    marks, now = Marks(), datetime.now(UTC)
    engine = started(gate_specs(HostClass.LINUX_LAPTOP, marks, []), 0)
    for at in (0.0, 5.0):
        engine, _ = sweep(engine, [reading("thermal.cpu_margin", margin, at=at)], marks, Clocks(at, at))
    found = judged(engine, marks, boot_now=5, wall_now=now)
    text = report(engine, found, HostClass.LINUX_LAPTOP, boot_now=5, wall_now=now - timedelta(seconds=10))
    (root / "run").mkdir()
    (root / "run" / "gates.json").write_text(json.dumps(text))


def test_the_table_shows_reading_quality_marks_and_why(tmp_path: Path) -> None:
    """One look says what is closed, by which reading, and when it may open."""
    written(tmp_path, 30)
    shown = CliRunner().invoke(command, ["--state-root", str(tmp_path)])
    assert shown.exit_code == 0
    assert "linux-laptop, 10 s ago: takes no work" in shown.output
    assert "SensorUnsupported" in shown.output
    assert "hold < 10 for 30 s" in shown.output


def test_json_is_the_report_with_its_age(tmp_path: Path) -> None:
    """Scripts read what people see."""
    written(tmp_path, 30)
    found = json.loads(CliRunner().invoke(command, ["--json", "--state-root", str(tmp_path)]).output)
    assert found["ageSeconds"] >= 10
    assert {gate["name"] for gate in found["gates"]} >= {"thermal", "power", "memory", "disk"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"writtenAt": "yesterday"}'])
def test_a_report_that_is_none_is_one_clear_error(tmp_path: Path, text: str) -> None:
    """And so is a missing one."""
    with pytest.raises(HostError):
        read_gates_file(tmp_path / "no.json")
    path = tmp_path / "gates.json"
    path.write_text(text)
    with pytest.raises(HostError, match=r"gates\.json"):
        read_gates_file(path)


def test_a_trace_is_replayed_line_by_line(tmp_path: Path) -> None:
    """Each transition with its time, its reason and the reading behind it."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text(TRACE)
    shown = CliRunner().invoke(command, ["replay", str(trace)])
    assert shown.exit_code == 0
    assert "40.0 s  thermal    open -> hold    MarginBelow10C  thermal.cpu_margin 8, mark 10" in shown.output


def test_a_trace_is_replayed_under_other_marks(tmp_path: Path) -> None:
    """What if the mark were 5?  Nothing would have closed."""
    trace, marks = tmp_path / "trace.jsonl", tmp_path / "marks.toml"
    trace.write_text(TRACE)
    marks.write_text("[gates.thermal]\nhold_margin_celsius = 5\n")
    lines = (
        CliRunner()
        .invoke(command, ["replay", str(trace), "--marks", str(marks), "--json"])
        .output.splitlines()
    )
    assert [json.loads(line)["after"] for line in lines if '"thermal"' in line] == ["open"]


def test_a_broken_trace_is_one_clear_error(tmp_path: Path) -> None:
    """The line is named."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text("{}\nnonsense\n")
    shown = CliRunner().invoke(command, ["replay", str(trace)])
    assert isinstance(shown.exception, UsageError)
    assert "line 2" in shown.exception.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("thermal = 3", "thermal"),
        ("[thermal]\nhold_margin = 5", "thermal.hold_margin"),
        ("[thermal]\nhold_margin_celsius = 500", "hold_margin_celsius"),
        ("[thermal", "cannot be read"),
    ],
)
def test_marks_that_are_none_name_their_key(tmp_path: Path, text: str, said: str) -> None:
    """A typo in a mark is not a default."""
    path = tmp_path / "marks.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_marks(path)


def test_forcing_needs_a_running_agent(tmp_path: Path) -> None:
    """Nothing is written behind an agent's back."""
    shown = CliRunner().invoke(
        gate_command, ["open", "thermal", "--for", "2h", "--state-root", str(tmp_path)]
    )
    assert isinstance(shown.exception, JourneymanError)
    assert "no agent runs" in shown.exception.message
