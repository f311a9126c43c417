"""`journeyman up` as a person uses it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from journeyman.control import call
from journeyman.errors import HostError
from journeyman_updater.contract import StateRoot
from tests.support.agents import ROOMY, roomy
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def up(root: Path, *options: str, own_group: bool = False) -> subprocess.Popen[str]:
    """Starts `journeyman up` on a state root of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "journeyman", "up", "--state-root", str(roomy(root)), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=own_group,
    )


def finish(process: subprocess.Popen[str], seconds: float = 90) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=seconds)
    return process.returncode, stdout, stderr


def left_over(root: Path) -> list[str]:
    """The command lines of all processes that have to do with a state root."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(root) in line and process.pid != os.getpid():
            found.append(line)
    return found


def serving(root: Path) -> bool:
    try:
        status = call(StateRoot(root), "status")
    except HostError:
        return False
    return any(model["phase"] == "ready" for model in status["models"])


def until_started(process: subprocess.Popen[str]) -> str:
    """All that it prints until everything runs."""
    assert process.stdout is not None
    said = ""
    while "Ctrl-C" not in said:
        line = process.stdout.readline()
        assert line, f"it ended after {said!r}"
        said += line
    return said


def test_once_answers_with_the_real_model_and_leaves_nothing(tmp_path: Path, real_model: Path) -> None:
    """One command: a plane, an agent, a model, a task that is GO, and no process afterwards."""
    root = tmp_path / "state root with spaces"
    code, stdout, stderr = finish(
        up(root, "--listen", "127.0.0.1:0", "--model", str(real_model), "--json",
           "--once", "Name three primary colours.")
    )  # fmt: skip
    assert code == 0, stderr
    shown = json.loads(stdout)
    assert "red" in shown["answer"].lower()
    status = shown["task"]["status"]
    assert (status["phase"], status["verdict"]) == ("Succeeded", "GO")
    assert status["assignedNode"]
    assert status["claimedAt"] <= status["finishedAt"]
    assert set(shown["seconds"]) == {"control plane", "agent", "model", "task", "stop"}
    assert left_over(root) == []


def test_ctrl_c_stops_everything_and_state_is_kept(tmp_path: Path, tiny_model: Path) -> None:
    """SIGINT to the whole terminal group ends all of the tree; the next run is the same node."""
    root = tmp_path / "root"
    names = []
    for _ in range(2):
        process = up(root, "--listen", "127.0.0.1:0", "--model", str(tiny_model), own_group=True)
        eventually(lambda: serving(root), within_seconds=60)
        names.append(call(StateRoot(root), "status")["nodeName"])
        os.killpg(process.pid, signal.SIGINT)
        code, _, stderr = finish(process)
        assert code == 0, stderr
        assert left_over(root) == []
    assert names[0] == names[1]
    assert (root / "keys" / "plane.pub").read_text() == (root / "plane" / "release.pub").read_text()


def test_the_endpoint_of_all_models_is_told(tmp_path: Path, tiny_model: Path) -> None:
    """What `up` prints is where an OpenAI client finds the model, and where its key lies."""
    process = up(tmp_path / "root", "--listen", "127.0.0.1:0", "--model", str(tiny_model))
    try:
        (line,) = [line for line in until_started(process).splitlines() if line.startswith("OpenAI API")]
        url, key_file = re.findall(r"(http\S+)  \(key in (.+)\)", line)[0]
        headers = {"Authorization": f"Bearer {Path(key_file).read_text().strip()}"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/models", headers=headers)) as reply:
            assert json.loads(reply.read())["data"][0]["id"] == "tiny"
    finally:
        process.send_signal(signal.SIGINT)
        finish(process)


def test_the_agent_is_told_what_up_was_told(tmp_path: Path, tiny_model: Path) -> None:
    """A named configuration and flags reach the agent, and a task runs on the node of that name."""
    named = tmp_path / "other.toml"
    named.write_text(f'[[inference]]\nname = "named"\nmodel = {json.dumps(str(tiny_model))}\n{ROOMY}')
    code, stdout, stderr = finish(
        up(tmp_path / "root", "--listen", "127.0.0.1:0", "--config", str(named), "--node-name", "shed",
           "--json", "--once", "Go on.")
    )  # fmt: skip
    assert code in {0, 1}, stderr
    shown = json.loads(stdout)["task"]
    assert (shown["status"]["phase"], shown["status"]["assignedNode"]) == ("Succeeded", "shed")


def test_kill_of_up_ends_everything_too(tmp_path: Path, tiny_model: Path) -> None:
    """After kill -9 of `up` its children notice, and stop by themselves, workers included."""
    root = tmp_path / "root"
    process = up(root, "--listen", "127.0.0.1:0", "--model", str(tiny_model))
    eventually(lambda: serving(root), within_seconds=60)
    process.kill()
    process.communicate()
    eventually(lambda: left_over(root) == [], within_seconds=30)


def test_a_killed_agent_is_started_again_and_adopts_the_model(
    tmp_path: Path,
    tiny_model: Path,
) -> None:
    """`up` keeps its children alive, and the model server does not notice."""
    root = tmp_path / "root"
    process = up(root, "--listen", "127.0.0.1:0", "--model", str(tiny_model))
    try:
        # An agent that ends while `up` still starts ends `up`.
        until_started(process)
        before = call(StateRoot(root), "status")
        # A child that dies within its first five seconds would not be tried again.
        eventually(lambda: psutil.Process(before["pid"]).create_time() < _seconds_ago(6), within_seconds=20)
        os.kill(before["pid"], signal.SIGKILL)
        eventually(lambda: serving(root) and _pid(root) != before["pid"], within_seconds=60)
        after = call(StateRoot(root), "status")
        assert after["models"][0]["worker"] == before["models"][0]["worker"]
        assert after["proxy"]["keyFile"] == before["proxy"]["keyFile"]
    finally:
        process.send_signal(signal.SIGINT)
        finish(process)


def _pid(root: Path) -> int:
    return int(call(StateRoot(root), "status")["pid"])


def _seconds_ago(seconds: float) -> float:
    return time.time() - seconds


def test_a_closed_gate_is_told_while_the_start_waits_for_it(tmp_path: Path, tiny_model: Path) -> None:
    """On a host that is too full for work `up` says which gate is closed and why, and goes on waiting."""
    root = roomy(tmp_path / "root")
    full = "[gates.disk]\nreserve_percent = 100\nreserve_max_bytes = 9e15\n"
    (root / "config.toml").write_text(full)
    process = up(root, "--listen", "127.0.0.1:0", "--model", str(tiny_model))
    assert process.stderr is not None
    said = ""
    while "disk" not in said:
        said = process.stderr.readline()
        assert said, "it ended without a word about the disk"
    assert "waiting" in said
    process.send_signal(signal.SIGINT)
    code, _, stderr = finish(process)
    assert code == 0, stderr
    assert left_over(root) == []


def test_a_port_in_use_is_one_line_and_its_own_code(tmp_path: Path) -> None:
    """Nothing is half-started when the plane cannot have its port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, stderr = finish(up(tmp_path, "--listen", f"127.0.0.1:{port}", "--once", "Hello."))
    assert code == 71
    assert f"127.0.0.1:{port}" in stderr or str(port) in stderr
    assert "Traceback" not in stderr
    assert left_over(tmp_path) == []


def test_a_missing_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """A path that does not exist is named, with exit code 74."""
    code, _, stderr = finish(up(tmp_path, "--model", str(tmp_path / "none.gguf"), "--once", "Hello."))
    assert code == 74
    assert "none.gguf" in stderr
    assert not (tmp_path / "plane").exists()


def test_a_corrupt_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """A file that is no GGUF is named, with exit code 74."""
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(range(200)))
    code, _, stderr = finish(up(tmp_path / "root", "--model", str(bad), "--once", "Hello."))
    assert code == 74
    assert "bad.gguf" in stderr
    assert "Traceback" not in stderr


def test_a_model_that_breaks_while_loading_ends_up_with_the_servers_reason(
    tmp_path: Path,
    tiny_model: Path,
) -> None:
    """A file that lacks a tensor fails in the model server, in its words; nothing is left behind."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_model.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight"))
    root = tmp_path / "root"
    code, _, stderr = finish(up(root, "--listen", "127.0.0.1:0", "--model", str(cut), "--once", "Hello."))
    assert code == 74, stderr
    assert "'blk.1.attn_q.weight' not found" in stderr
    assert left_over(root) == []


def test_a_second_up_on_the_same_root_is_refused_and_the_first_goes_on(
    tmp_path: Path,
    tiny_model: Path,
) -> None:
    """One state root has one fleet; the second gets exit code 73 and disturbs nothing."""
    root = tmp_path / "root"
    options = ("--listen", "127.0.0.1:0", "--model", str(tiny_model))
    first = up(root, *options)
    try:
        eventually(lambda: serving(root), within_seconds=60)
        code, _, stderr = finish(up(root, *options, "--once", "Hello."))
        assert code == 73, stderr
        assert serving(root)
        assert_well(root)
    finally:
        first.send_signal(signal.SIGINT)
        finish(first)


def assert_well(root: Path) -> None:
    """The doctor finds nothing wrong with a host that runs `up` and has nothing installed, and says so."""
    command = [sys.executable, "-m", "journeyman", "doctor", "--json", "--state-root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0, checks
    assert checks["service"]["finding"].startswith("not installed")
    assert {"agent", "server", "clock"} <= set(checks)


def test_an_empty_prompt_is_a_usage_error(tmp_path: Path) -> None:
    """Nothing starts for a prompt that asks nothing."""
    code, _, stderr = finish(up(tmp_path, "--once", "  "))
    assert code == 2
    assert "prompt" in stderr
