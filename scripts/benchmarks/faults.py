"""How soon an agent says what is wrong with a model file that cannot be served.

Counted by the agent's own log, from READY to the model's last phase, for one agent and one damaged file at a
time: empty, cut in its header or its weights, of an old format or a new version, a web page, not there.
"""

from __future__ import annotations

import json
import struct
import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, median_of
from tests.support.agents import AgentProcess, agent
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.waiting import eventually

# Nobody listens there: judging a file needs no control plane.
NOWHERE = "http://127.0.0.1:9"
BUDGET_SECONDS = 1.0


def measure() -> list[Figure]:
    """Starts seven agents, one after the other; raises AssertionError if two files have the same reason."""
    seconds, reasons = [], set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tiny_gguf(folder / "whole.gguf")
        (folder / "token").write_text("none")
        for fault, content in _damaged((folder / "whole.gguf").read_bytes()).items():
            model = folder / f"{fault}.gguf"
            if content is not None:
                model.write_bytes(content)
            place = folder / fault
            with agent(place, NOWHERE, folder / "token", name="bench", models=(str(model),)) as running:
                eventually(partial(_has_failed, running), within_seconds=60)
                reasons.add(running.status()["models"][0]["failure"])
                seconds.append(_seconds_to_reason(running))
    assert len(reasons) == len(seconds), f"some have the same reason: {sorted(reasons)}"
    return [
        median_of("READY to the reason, seven damaged files", seconds, "s"),
        Figure("the slowest of them", round(max(seconds), 3), "s", BUDGET_SECONDS),
    ]


def _damaged(whole: bytes) -> dict[str, bytes | None]:
    return {
        "empty": b"",
        "header-cut": whole[:300],
        "weights-cut": whole[:-100],
        "old-format": b"GGML" + whole[4:],
        "new-version": whole[:4] + struct.pack("<I", 99) + whole[8:],
        "web-page": b"<!DOCTYPE html><html><body>Not found</body></html>" * 50,
        "missing": None,
    }


def _has_failed(running: AgentProcess) -> bool:
    return bool(running.status()["models"][0]["phase"] == "failed")


def _seconds_to_reason(running: AgentProcess) -> float:
    lines = [json.loads(line) for line in running.log().splitlines() if line.startswith("{")]
    [ready] = [line for line in lines if line["event"] == "agent_ready"]
    [failed] = [line for line in lines if line.get("phase") == "failed"]
    return _moment(failed) - _moment(ready)


def _moment(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
