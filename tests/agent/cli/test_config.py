"""`journeyman config`, as a person and as a program meets it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from journeyman.settings import Settings

pytestmark = pytest.mark.slow


def journeyman(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "XDG_DATA_HOME": str(home), **variables}
    return subprocess.run(
        [sys.executable, "-m", "journeyman", *words],
        capture_output=True, text=True, check=False, env=environ, timeout=60, cwd=home,
    )  # fmt: skip


def test_show_says_where_each_value_came_from(tmp_path: Path) -> None:
    """Flag, variable, file with line, and default; every setting is there."""
    file = tmp_path / "node.toml"
    file.write_text("# a node\ntask_poll_seconds = 2\ntoken_file = 'token'\n")
    (tmp_path / "token").write_text("hunter2")
    words = ("config", "show", "--json", "--config", str(file), "--heartbeat-interval-seconds", "12")
    shown = journeyman(tmp_path, *words, JOURNEYMAN_ROLES="worker,verifier")
    assert shown.returncode == 0, shown.stderr
    settings = json.loads(shown.stdout)["settings"]
    assert settings.keys() == Settings.model_fields.keys()
    assert settings["heartbeat_interval_seconds"] == {
        "value": 12.0,
        "origin": "flag",
        "place": "--heartbeat-interval-seconds",
    }
    assert settings["roles"] == {
        "value": ["worker", "verifier"],
        "origin": "environment",
        "place": "JOURNEYMAN_ROLES",
    }
    assert settings["task_poll_seconds"] == {"value": 2.0, "origin": "file", "place": f"{file}:2"}
    assert settings["log_level"] == {"value": "info", "origin": "default", "place": ""}
    assert settings["token_file"]["value"] == str(tmp_path / "token")
    assert "hunter2" not in shown.stdout


def test_show_prints_one_line_for_each_setting(tmp_path: Path) -> None:
    """Without a terminal the table can be cut into columns."""
    shown = journeyman(tmp_path, "config", "show", "--server", "https://plane")
    head, *lines = shown.stdout.splitlines()
    assert head.split() == ["SETTING", "VALUE", "FROM"]
    assert [line.split()[0] for line in lines] == list(Settings.model_fields)
    assert next(line.split() for line in lines if line.startswith("server ")) == [
        "server",
        "https://plane",
        "--server",
    ]


def test_show_draws_a_table_on_a_terminal(tmp_path: Path) -> None:
    """People get the same rows."""
    terminal, inside = pty.openpty()
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TERM": "dumb", "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "-m", "journeyman", "config", "show", "--state-root", "/node"],
        stdout=inside,
        env=environ,
    ) as shown:
        os.close(inside)
        chunks = []
        try:
            while chunk := os.read(terminal, 65536):
                chunks.append(chunk)
        except OSError:
            pass  # Linux reports the end of a terminal as EIO.
    os.close(terminal)
    assert shown.returncode == 0
    lines = b"".join(chunks).decode().splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "FROM"]
    assert [line.split()[0] for line in lines[1:] if line.strip()] == list(Settings.model_fields)


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (
            ("--task-poll-seconds", "soon"),
            {},
            "task_poll_seconds (--task-poll-seconds): it should be a valid",
        ),
        ((), {"JOURNEYMAN_SERVR": "x"}, "servr (JOURNEYMAN_SERVR): no such setting; did you mean server?"),
        (("--config", "none.toml"), {}, "there is no settings file"),
        (("--server", "http://192.0.2.1"), {}, "in the clear"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_78(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    """Nothing is printed on standard output, and no traceback anywhere."""
    shown = journeyman(tmp_path, "config", "show", *words, **variables)
    assert shown.returncode == 78
    assert shown.stdout == ""
    assert shown.stderr.startswith("journeyman: ")
    assert said in shown.stderr.splitlines()[0]
    assert "Traceback" not in shown.stderr


def test_an_unknown_flag_is_a_usage_error(tmp_path: Path) -> None:
    """Click's own check comes first, with exit code 2."""
    assert journeyman(tmp_path, "config", "show", "--sever", "x").returncode == 2


def test_path_finds_a_broken_file(tmp_path: Path) -> None:
    """Whoever has to mend the file learns where it is."""
    (tmp_path / "config.toml").write_text("broken")
    shown = journeyman(tmp_path, "config", "path", "--state-root", str(tmp_path))
    assert (shown.returncode, shown.stdout) == (0, f"{tmp_path / 'config.toml'}\n")
    facts = json.loads(journeyman(tmp_path, "config", "path", "--json", "--state-root", str(tmp_path)).stdout)
    assert facts == {"configFile": str(tmp_path / "config.toml"), "exists": True}
    assert journeyman(tmp_path, "config", "show", "--state-root", str(tmp_path)).returncode == 78
