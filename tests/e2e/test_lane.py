"""`journeyman lane run` with real agents, real shims and real commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from journeyman.control import call
from tests.support.agents import AgentProcess, agent, roomy
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

NOWHERE = "http://127.0.0.1:9"
END_SECONDS = 60.0


@dataclass
class Lane:
    """The command line of one agent's lane; what it has started is gone at the end."""

    running: AgentProcess
    jobs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self, *words: str, **given: Any) -> subprocess.Popen[bytes]:
        root = str(self.running.root.path)
        command = [sys.executable, "-m", "journeyman", "lane", "run", "--state-root", root, *words]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)
        self.jobs.append(job)
        return job

    def run(self, *words: str, **given: Any) -> subprocess.CompletedProcess[bytes]:
        job = self.begin(*words, **given)
        out, err = job.communicate(timeout=END_SECONDS)
        return subprocess.CompletedProcess(job.args, job.returncode, out, err)

    def receipts(self) -> list[dict[str, Any]]:
        found = self.running.root.workers.glob("lane-*/files/receipt.json")
        return [json.loads(path.read_text()) for path in found]


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[Lane]:
    """An agent without a control plane, which the lane does not need."""
    token = tmp_path / "token"
    token.write_text("none")
    with agent(tmp_path, NOWHERE, token, options={"max_lane_jobs": "3"}) as running:
        lane = Lane(running.until_admitting())
        try:
            yield lane
        finally:
            for job in lane.jobs:
                if job.poll() is None:
                    job.kill()
                job.communicate()


def waiter(folder: Path, number: int) -> tuple[str, ...]:
    """A job that leaves a mark when it starts and ends when its end is there."""
    script = f'touch "{folder}/began-{number}"; until [ -e "{folder}/end-{number}" ]; do sleep 0.05; done'
    return ("--cpu", "0", "--", "/bin/sh", "-c", script)


def test_output_exit_code_and_place_are_those_of_the_command(lane: Lane, tmp_path: Path) -> None:
    """It runs where and as the caller would, and every byte and the exit code come through."""
    script = "pwd; echo $MARK >&2; head -c 3000000 /dev/urandom > bytes; cat bytes; exit 3"
    place = tmp_path / "a place"
    place.mkdir()
    done = lane.run("--", "/bin/sh", "-c", script, cwd=place, env={**os.environ, "MARK": "here"})
    assert done.stdout == f"{place}\n".encode() + (place / "bytes").read_bytes()
    assert (done.stderr, done.returncode) == (b"here\n", 3)
    assert not list(lane.running.root.run.glob("lane-*"))


def test_a_receipt_tells_what_became_of_it(lane: Lane) -> None:
    """On stderr where it is asked for, and kept in the worker's folder; the caller's environment is not."""
    done = lane.run("--ram", "64M", "--name", "greet", "--json", "--", "echo", "hello")
    assert done.stdout == b"hello\n"
    receipt = json.loads(done.stderr)
    assert receipt["command"] == ["echo", "hello"]
    assert (receipt["exitCode"], receipt["why"], receipt["uncertain"]) == (0, "Succeeded", False)
    assert receipt["reserved"]["ramBytes"] == 64_000_000
    assert receipt["peakMemoryBytes"] > 0
    assert receipt["id"].startswith("lane-greet-")
    eventually(lambda: lane.receipts() == [receipt])
    folder = lane.running.root.workers / receipt["id"]
    assert not (folder / "spec.json").exists()


def test_the_cli_runs_it_just_as_the_short_way_does(lane: Lane) -> None:
    """A spelling that only the CLI understands changes nothing else; a wrong amount is explained."""
    done = lane.run("--ram=1M", "--json", "--", "/bin/sh", "-c", "echo hello; exit 4")
    assert (done.stdout, done.returncode) == (b"hello\n", 4)
    assert json.loads(done.stderr)["reserved"]["ramBytes"] == 1_000_000
    wrong = lane.run("--ram", "much", "--", "true")
    assert wrong.returncode == 2
    assert b"'much' is no amount of bytes; write 500M, 2G or 2Gi" in wrong.stderr
    assert b"no name for a job" in lane.run("--name", "a/b", "--", "true").stderr


def test_a_command_that_does_not_exist_is_127(lane: Lane) -> None:
    """As a shell has it."""
    done = lane.run("--", "no-such-command")
    assert done.returncode == 127
    assert b"cannot start 'no-such-command'" in done.stderr


def test_what_can_never_fit_is_refused_at_once(lane: Lane) -> None:
    """It is told what this host has, and does not wait."""
    done = lane.run("--ram", "900T", "--", "true")
    assert done.returncode == 71
    assert b"900 TB wanted, this host has" in done.stderr


def test_without_an_agent_nothing_runs(tmp_path: Path) -> None:
    """There is no silent run past the gates; the error says how to start an agent."""
    proof, root = tmp_path / "it-ran", str(roomy(tmp_path / "root"))
    command = [
        sys.executable,
        "-m",
        "journeyman",
        "lane",
        "run",
        "--state-root",
        root,
        "--",
        "touch",
        str(proof),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=END_SECONDS)
    assert done.returncode == 71
    assert "no agent runs" in done.stderr
    assert "journeyman run" in done.stderr
    assert not proof.exists()


def test_the_time_is_kept(lane: Lane) -> None:
    """A job that takes too long is ended, and the receipt says by what."""
    done = lane.run("--timeout", "1s", "--json", "--", "sleep", "1000")
    assert done.returncode == 128 + signal.SIGTERM
    assert json.loads(done.stderr)["why"] == "Timeout"


def test_ctrl_c_asks_and_a_second_one_kills(lane: Lane, tmp_path: Path) -> None:
    """The job hears the first one as SIGTERM; one that does not care is killed by the second."""
    script = f'trap "echo asked" TERM; touch "{tmp_path}/ready"; while true; do sleep 0.05; done'
    job = lane.begin("--json", "--", "/bin/sh", "-c", script)
    assert job.stdout is not None
    eventually((tmp_path / "ready").exists, within_seconds=END_SECONDS)
    job.send_signal(signal.SIGINT)
    assert job.stdout.readline() == b"asked\n"
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=END_SECONDS)
    assert job.returncode == 128 + signal.SIGKILL
    assert json.loads(err.splitlines()[-1])["why"] == "Cancelled"


def test_a_closed_pipe_ends_the_job_as_it_would_by_itself(lane: Lane) -> None:
    """`lane run -- yes | head -1` ends, by SIGPIPE."""
    job = lane.begin("--", "yes")
    assert job.stdout is not None
    assert job.stdout.readline() == b"y\n"
    job.stdout.close()
    assert job.wait(END_SECONDS) == 128 + signal.SIGPIPE
    job.stdout = None


def test_twenty_in_a_second_on_a_host_with_room_for_three(lane: Lane, tmp_path: Path) -> None:
    """Exactly three start; each of the rest says why, in which place and until when; they follow in turn."""
    jobs = [lane.begin(*waiter(tmp_path, number)) for number in range(20)]

    def began() -> set[int]:
        return {int(path.name.partition("-")[2]) for path in tmp_path.glob("began-*")}

    waiting = []
    eventually(lambda: len(began()) == 3, within_seconds=END_SECONDS)
    for number, job in enumerate(jobs):
        if number not in began():
            assert job.stderr is not None
            line = job.stderr.readline().decode()
            assert "waits in place" in line
            assert "NoSlots" in line or "NotYourTurn" in line
            assert "until" in line
            waiting.append(line)
    assert len(waiting) == 17
    assert len(began()) == 3
    done: set[int] = set()
    while done != set(range(20)):
        for number in sorted(began() - done):
            (tmp_path / f"end-{number}").touch()
            assert jobs[number].wait(END_SECONDS) == 0
            done.add(number)
            assert len(began() - done) <= 3
        eventually(lambda: len(began()) == min(20, len(done) + 3), within_seconds=END_SECONDS)
    assert len(lane.receipts()) == 20


def test_a_client_that_goes_away_leaves_the_queue(lane: Lane, tmp_path: Path) -> None:
    """Ctrl-C in the queue frees the place; a client that was killed there is never run for."""
    for number in range(3):
        lane.begin(*waiter(tmp_path, number))
    eventually(lambda: len(list(tmp_path.glob("began-*"))) == 3, within_seconds=END_SECONDS)
    for number, deadly in ((3, signal.SIGINT), (4, signal.SIGKILL)):
        job = lane.begin(*waiter(tmp_path, number))
        assert job.stderr is not None
        assert b"place 1 of" in job.stderr.readline()
        job.send_signal(deadly)
        assert job.wait(END_SECONDS) in {130, -signal.SIGKILL}
    last = lane.begin(*waiter(tmp_path, 5))
    for number in range(3):
        (tmp_path / f"end-{number}").touch()
    eventually((tmp_path / "began-5").exists, within_seconds=END_SECONDS)
    (tmp_path / "end-5").touch()
    assert last.wait(END_SECONDS) == 0
    assert not (tmp_path / "began-3").exists()
    assert not (tmp_path / "began-4").exists()


def test_kill_9_of_the_agent_loses_and_doubles_nothing(lane: Lane, tmp_path: Path) -> None:
    """Jobs go on, the next agent adopts them with what they reserved, and the clients come back to it."""
    jobs = [lane.begin("--json", *waiter(tmp_path, number)) for number in range(4)]
    eventually(lambda: len(list(tmp_path.glob("began-*"))) == 3, within_seconds=END_SECONDS)
    (queued,) = [job for number, job in enumerate(jobs) if not (tmp_path / f"began-{number}").exists()]
    assert queued.stderr is not None
    assert b"place 1 of 1" in queued.stderr.readline()
    before = {record.worker_id: record.worker for record in lane.running.worker_records()}
    lane.running.kill()
    lane.running.start()
    assert {record.worker_id: record.worker for record in lane.running.worker_records()} == before
    assert len(list(tmp_path.glob("began-*"))) == 3
    for number in range(4):
        (tmp_path / f"end-{number}").touch()
    for job in jobs:
        _, err = job.communicate(timeout=END_SECONDS)
        assert job.returncode == 0, err
    assert len(list(tmp_path.glob("began-*"))) == 4
    assert len(lane.receipts()) == 4


def test_an_end_that_nobody_saw_is_uncertain(lane: Lane, tmp_path: Path) -> None:
    """Without the shim nobody knows how it went: the receipt says so, and it is not run again."""
    job = lane.begin("--json", *waiter(tmp_path, 0))
    eventually((tmp_path / "began-0").exists, within_seconds=END_SECONDS)
    (record,) = lane.running.worker_records()
    os.kill(record.shim.pid, signal.SIGKILL)
    _, err = job.communicate(timeout=END_SECONDS)
    receipt = json.loads(err.splitlines()[-1])
    assert (job.returncode, receipt["uncertain"], receipt["exitCode"]) == (70, True, None)


def test_a_cordon_keeps_jobs_waiting(lane: Lane, tmp_path: Path) -> None:
    """Whoever keeps work away is named, and the job starts when the word is taken back."""
    call(lane.running.root, "cordon", reason="a demo")
    job = lane.begin(*waiter(tmp_path, 0))
    assert job.stderr is not None
    assert "Held: user: a demo" in job.stderr.readline().decode()
    (tmp_path / "end-0").touch()
    call(lane.running.root, "uncordon")
    assert job.wait(END_SECONDS) == 0
