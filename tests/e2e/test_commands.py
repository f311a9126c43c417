"""The commands that people type, against a running plane and agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import AgentProcess, agent
from tests.support.plane import RunningPlane, running_plane
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@dataclass
class Terminal:
    """Types commands with the server and the state root of one agent."""

    agent: AgentProcess

    def type(self, *words: str, remote: bool = False, code: int = 0, stdin: str = "") -> str:
        """Runs a command; `remote` ones talk to the plane, the others to the agent."""
        where = ["--state-root", str(self.agent.root.path)]
        if remote:
            where += ["--server", self.agent.server, "--token-file", str(self.agent.token_file)]
        done = subprocess.run(
            [sys.executable, "-m", "journeyman", *words, *where],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, *words: str, remote: bool = False) -> Any:
        return json.loads(self.type(*words, "--json", remote=remote))


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture(scope="module")
def terminal(
    tmp_path_factory: pytest.TempPathFactory, plane: RunningPlane, tiny_model: Path
) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("agent")
    with agent(folder, plane.url, plane.token_file, models=(str(tiny_model),)) as running:
        yield Terminal(running.until_serving())


def test_submit_prints_the_name_and_get_shows_the_task(terminal: Terminal) -> None:
    """A submitted task is found again under the name that was printed or given."""
    printed = terminal.type("task", "submit", "Say yes.", "--name", "first", remote=True)
    assert printed == "task first submitted\n"
    assert terminal.json("task", "get", "first", remote=True)["spec"]["payload"]["prompt"] == "Say yes."
    names = [task["metadata"]["name"] for task in terminal.json("task", "list", remote=True)]
    assert "first" in names
    assert "first" in terminal.type("task", "list", remote=True)


def test_watch_ends_with_the_task(terminal: Terminal) -> None:
    """Watching one task prints its changes and ends when it has ended."""
    terminal.type("task", "submit", "Say yes.", "--name", "watched", remote=True)
    lines = terminal.type("task", "watch", "watched", "--json", remote=True).splitlines()
    phases = [json.loads(line)["object"].get("status", {}).get("phase") for line in lines]
    assert phases[-1] in {"Succeeded", "Failed"}


def test_a_prompt_can_come_by_standard_input(terminal: Terminal) -> None:
    """`-` reads the prompt, so that it need not stand in a process list."""
    terminal.type("task", "submit", "-", "--name", "piped", remote=True, stdin="Say no.\n")
    task = terminal.json("task", "get", "piped", remote=True)
    assert task["spec"]["payload"]["prompt"] == "Say no.\n"


def test_a_task_name_that_is_taken_is_a_conflict(terminal: Terminal) -> None:
    """Submitting under a name twice is refused with exit code 75, and the first task stays."""
    terminal.type("task", "submit", "Say yes.", "--name", "twice", remote=True)
    said = terminal.type("task", "submit", "Say no.", "--name", "twice", remote=True, code=75)
    assert "twice" in said
    assert terminal.json("task", "get", "twice", remote=True)["spec"]["payload"]["prompt"] == "Say yes."


def test_a_task_that_does_not_exist_is_not_found(terminal: Terminal) -> None:
    """Exit code 66, and the name in the message."""
    assert "nothing-there" in terminal.type("task", "get", "nothing-there", remote=True, code=66)


def test_an_unknown_agent_ends_the_task_with_a_reason(terminal: Terminal) -> None:
    """A persona that does not exist fails the task; --wait exits with 1."""
    said = terminal.type("task", "submit", "Hi.", "--name", "lost", "--agent", "nobody", "--wait",
                         remote=True, code=1)  # fmt: skip
    assert "lost" in said
    status = terminal.json("task", "get", "lost", remote=True)["status"]
    assert (status["phase"], status["failureReason"]) == ("Failed", "AgentNotFound")


def test_nodes_shows_who_is_there(terminal: Terminal) -> None:
    """The table has the node with its phase, version, model and memory."""
    [node] = terminal.json("nodes", remote=True)
    assert node["metadata"]["name"] == terminal.agent.name
    table = terminal.type("nodes", remote=True)
    assert "Ready" in table
    assert "tiny" in table
    assert "GiB" in table


def test_cordon_status_and_uncordon(terminal: Terminal) -> None:
    """A cordon shows with its reason and its end, and is lifted by uncordon."""
    held = terminal.json("cordon", "--for", "2h", "--reason", "video call")
    assert held["phase"] == "Draining"
    assert held["holds"][0]["reason"] == "video call"
    assert held["holds"][0]["until"]
    assert terminal.json("status")["phase"] == "Draining"
    assert "video call" in terminal.type("status")
    assert terminal.json("uncordon")["phase"] == "Ready"


def test_a_cordoned_node_gets_no_task_and_an_uncordoned_one_does(terminal: Terminal) -> None:
    """What is submitted during a cordon waits, and runs after it."""
    terminal.type("cordon")
    eventually(lambda: terminal.json("nodes", remote=True)[0]["status"]["phase"] == "Draining")
    terminal.type("task", "submit", "Say yes.", "--name", "patient", remote=True)
    assert terminal.json("task", "get", "patient", remote=True)["status"]["phase"] == "Pending"
    terminal.type("uncordon")
    terminal.type("task", "watch", "patient", remote=True)
    assert terminal.json("task", "get", "patient", remote=True)["status"]["phase"] == "Succeeded"


def test_drain_returns_when_nothing_runs(terminal: Terminal) -> None:
    """After drain the node holds no task and no undelivered result, and takes nothing new."""
    terminal.type("task", "submit", "Say yes.", "--name", "draining", remote=True)
    drained = terminal.json("drain", "--timeout", "60s")
    assert drained["tasks"] == []
    assert drained["undelivered"] == 0
    assert drained["phase"] == "Draining"
    terminal.type("uncordon")
    terminal.type("task", "watch", "draining", remote=True)


@pytest.mark.parametrize("words", [("cordon", "--for", "soon"), ("task", "submit", "   ")])
def test_what_cannot_be_understood_is_a_usage_error(terminal: Terminal, words: tuple[str, ...]) -> None:
    """A length of time that is none, or an empty prompt, is exit code 2."""
    terminal.type(*words, code=2)


def test_a_wrong_token_is_told_from_a_missing_plane(terminal: Terminal, tmp_path: Path) -> None:
    """A refused credential is exit code 77; a plane that is not there 69; each one clear line."""
    wrong = tmp_path / "token"
    wrong.write_text("wrong")
    command = [sys.executable, "-m", "journeyman", "nodes", "--server"]
    refused = subprocess.run(
        [*command, terminal.agent.server, "--token-file", str(wrong)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 77
    absent = subprocess.run(
        [*command, "http://127.0.0.1:9", "--token-file", str(wrong)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert absent.returncode == 69
    for done in (refused, absent):
        assert done.stderr.startswith("journeyman: ")
        assert len(done.stderr.splitlines()) <= 2


def test_without_an_agent_status_says_how_to_start_one(tmp_path: Path) -> None:
    """Exit code 71, and the command to type."""
    done = subprocess.run(
        [sys.executable, "-m", "journeyman", "status", "--state-root", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 71
    assert "journeyman run" in done.stderr


def test_a_second_agent_on_a_state_root_is_refused(terminal: Terminal) -> None:
    """Exit code 73, and the first agent does not notice."""
    said = terminal.type("run", remote=True, code=73)
    assert str(terminal.agent.root.path) in said
    assert terminal.json("status")["pid"]


def test_a_token_that_never_worked_ends_a_new_agent(terminal: Terminal, tmp_path: Path) -> None:
    """An agent that the plane refuses from the first moment on exits with 77 and one clear line."""
    wrong = tmp_path / "token"
    wrong.write_text("wrong")
    done = subprocess.run(
        [sys.executable, "-m", "journeyman", "run", "--state-root", str(tmp_path / "root"),
         "--server", terminal.agent.server, "--token-file", str(wrong)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 77
    assert "token" in done.stderr.splitlines()[-1]


def test_another_agent_under_our_name_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    """Exit code 76 for the second of two agents under one name; the node stays the first one's."""
    done = subprocess.run(
        [sys.executable, "-m", "journeyman", "run", "--state-root", str(tmp_path),
         "--server", terminal.agent.server, "--token-file", str(terminal.agent.token_file),
         "--node-name", terminal.agent.name],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 76
    assert terminal.agent.name in done.stderr
    assert terminal.json("status")["lastHeartbeatError"] == ""
