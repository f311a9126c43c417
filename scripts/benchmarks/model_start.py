"""How much later a model is ready in an agent than its server alone could generate a token.

Both are counted from the start of the server's process: alone, until a client that asks all the time has
got a token from it; in an agent, until the agent says that the model is ready.  The two take turns.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from benchmarks.figures import Figure, median_of
from tests.support.agents import AgentProcess, agent
from tests.support.plane import TRUSTS_NOBODY
from tests.support.tiny_gguf import write_tiny_gguf

NOWHERE = "http://127.0.0.1:9"
RUNS = 9
LOOK_SECONDS = 0.002
LONGEST_SECONDS = 60.0


def measure() -> list[Figure]:
    """Takes about half a minute."""
    alone, kept = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, token = folder / "tiny.gguf", folder / "token"
        write_tiny_gguf(model)
        token.write_text("none")
        for number in range(RUNS):
            with agent(folder / str(number), NOWHERE, token, name="bench", models=(str(model),)) as running:
                kept.append(_ready_seconds(running))
                [server] = [each for each in running.worker_records() if each.kind == "model-server"]
                files = running.root.workers / server.worker_id / "files"
                here = folder / f"alone-{number}"
                here.mkdir()
                for file in ("config.json", "api-key"):
                    shutil.copy(files / file, here)
                environment = psutil.Process(server.worker.pid).environ()
            alone.append(_token_seconds(here, environment))
    added = [1000 * (with_agent - bare) for with_agent, bare in zip(kept, alone, strict=True)]
    return [
        median_of("model server alone: start to first token", alone, "s"),
        median_of("model of an agent: start to ready", kept, "s"),
        median_of("added by the agent", added, "ms", 150),
    ]


def _ready_seconds(running: AgentProcess) -> float:
    for _ in _looks():
        if [model["phase"] for model in running.status()["models"]] == ["ready"]:
            now = time.time()
            [server] = [each for each in running.worker_records() if each.kind == "model-server"]
            return now - psutil.Process(server.worker.pid).create_time()
    raise AssertionError("the model was not ready in time")


def _token_seconds(folder: Path, environment: dict[str, str]) -> float:
    command, silent = [sys.executable, "-m", "journeyman.workers.native_server"], subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=silent, stderr=silent) as server:
        try:
            for _ in _looks():
                if _generates(folder):
                    return time.time() - psutil.Process(server.pid).create_time()
        finally:
            server.terminate()
    raise AssertionError("the server alone generated nothing in time")


def _generates(folder: Path) -> bool:
    """Whether it answers one question with a token."""
    try:
        url = json.loads((folder / "endpoint.json").read_bytes())["base_url"]
        headers = {"Authorization": f"Bearer {(folder / 'api-key').read_text().strip()}"}
        question = {"prompt": "hi", "max_tokens": 1}
        # To load the certificates of the world would take longer than the token.
        with httpx.Client(headers=headers, timeout=LONGEST_SECONDS, verify=TRUSTS_NOBODY) as client:
            answer = client.post(f"{url}/completions", json=question)
        return bool(answer.raise_for_status().json()["choices"])
    except (OSError, ValueError, httpx.HTTPError):
        return False


def _looks() -> Iterator[None]:
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        yield
        time.sleep(LOOK_SECONDS)
