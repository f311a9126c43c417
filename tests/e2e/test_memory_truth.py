"""What a real model server took: shown, kept, and what the next start is judged by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.agents import agent
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

NOWHERE = "http://127.0.0.1:9"


def test_the_next_agent_judges_by_what_the_server_took(tmp_path: Path, tiny_model: Path) -> None:
    """Both figures are in the status, within a tenth of each other; the one that was measured counts."""
    (tmp_path / "token").write_text("none")
    options = {"log_format": "json", "proxy": "false"}
    with agent(tmp_path, NOWHERE, tmp_path / "token", models=(str(tiny_model),), options=options) as running:

        def memory() -> dict[str, int | None]:
            (model,) = running.status()["models"]
            found: dict[str, int | None] = model["memory"]
            return found

        eventually(lambda: memory()["allocatedBytes"] is not None, within_seconds=60)
        known = memory()
        assert known["estimatedBytes"] == pytest.approx(known["allocatedBytes"], rel=0.1)
        running.stop()
        running.kill_workers()
        written = running.log_file.stat().st_size
        running.start()
        assert memory()["allocatedBytes"] == known["allocatedBytes"]
        running.until_serving()
        lines = running.log_file.read_bytes()[written:].decode().splitlines()
        judged = [line for line in map(json.loads, lines) if line["event"] == "model_server_judged"]
        assert [line["needs"] for line in judged] == [known["allocatedBytes"]]
