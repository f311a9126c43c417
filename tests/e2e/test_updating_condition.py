"""The condition `Updating`, from the updater's file over a real agent to a real plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.adapters.update_news import UpdateNews
from journeyman_updater.model.journal import Record, Step
from tests.support.agents import agent
from tests.support.plane import FOREMAN, running_plane
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
SHA = "ab" * 32


def record(step: Step, **detail: Any) -> Record:
    return Record(1, "boot", 0, "", "0.2.0", 0, SHA, step, detail)


def test_the_agent_tells_what_the_updater_does(tmp_path: Path) -> None:
    """Each step reaches the node with the agent's next beats, beside its other conditions."""
    spoken: list[object] = []
    with (
        running_plane(tmp_path) as plane,
        plane.client() as client,
        agent(tmp_path, plane.url, plane.token_file) as running,
    ):

        def told() -> tuple[str, str, str] | None:
            node = client.get(f"{FOREMAN}/fleetnodes/{running.name}").json()
            found = [item for item in node["status"].get("conditions", ()) if item["type"] == "Updating"]
            return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None

        eventually(running.root.last_beat_file.exists)
        assert told() is None
        news = UpdateNews(running.root, SystemClock(), spoken.append)
        news.noted(record(Step.FETCH))
        news.fetched(37, 100)
        eventually(lambda: told() == ("True", "Fetching", "0.2.0 is fetched, 30 % of 100 bytes"))
        news.noted(record(Step.REFUSED, reason="Expired", evidence="the signature expired"))
        eventually(lambda: told() == ("False", "Expired", "0.2.0 was refused: the signature expired"))
        node = client.get(f"{FOREMAN}/fleetnodes/{running.name}").json()
        assert {"Held", "DiskPressure", "Updating"} <= {item["type"] for item in node["status"]["conditions"]}
        news.ended()
    # The agent was heard all the time, so the updater kept silent.
    assert spoken == []
