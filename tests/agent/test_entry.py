"""The short way into the lane understands the usual words, and leaves all others to the CLI."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from journeyman.entry import understood


def test_the_usual_words_are_understood_as_the_cli_would() -> None:
    """Amounts and times have the units of the command's help; the command is what follows `--`."""
    amounts = "--ram 2G --disk 1Gi --vram 500M --cpu 1.5 --timeout 30m"
    assert understood(f"{amounts} --name n --json --state-root /r -- a --json b".split()) == {
        "ram_bytes": 2 * 10**9,
        "disk_bytes": 2**30,
        "vram_bytes": 500 * 10**6,
        "cpus": 1.5,
        "timeout_seconds": 1800.0,
        "name": "n",
        "as_json": True,
        "state_root": "/r",
        "argv": ("a", "--json", "b"),
    }


@pytest.mark.parametrize(
    "words",
    [
        "", "--", "--help", "true", "--ram=2G -- true", "--ram -- true", "--ram much -- true",
        "--cpu -1 -- true", "--cpu nan -- true", "--timeout 0s -- true", "--config c -- true", "word -- true",
    ],
)  # fmt: skip
def test_everything_else_is_left_to_the_cli(words: str) -> None:
    """It has the help, the other spellings, and an explanation for what is wrong."""
    assert understood(words.split()) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "loaded",
    ["journeyman.entry, journeyman.lane_client, journeyman.place", "journeyman_updater.shim"],
)
def test_what_a_command_of_the_lane_waits_for_loads_little(loaded: str) -> None:
    """Both ends of `lane run` start in a third of the time without these parts of the standard library."""
    code = f"import sys, {loaded}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", code],
        env={"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    heavy = {"asyncio", "dataclasses", "inspect", "pathlib", "runpy", "subprocess", "typing", "pydantic"}
    assert heavy.isdisjoint(done.stdout.split())
