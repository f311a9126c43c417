"""`journeyman plane` as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plane import spawn_plane

pytestmark = pytest.mark.slow


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments, bounded."""
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_it_says_where_it_listens(tmp_path: Path) -> None:
    """With --json the first document names the URL and the files by which the admin gets in."""
    with spawn_plane(tmp_path, "--tls") as plane:
        assert plane.url.startswith("https://127.0.0.1:")
        for file in ("admin.token", "admin.kubeconfig", "ca.crt"):
            assert (plane.data_dir / file).exists()
        assert (plane.data_dir / "address").read_text().strip() == plane.url


def test_people_get_a_command_to_try(tmp_path: Path) -> None:
    """Without --json it prints a kubectl line that can be pasted."""
    words = [
        sys.executable,
        "-m",
        "journeyman",
        "plane",
        "--data-dir",
        str(tmp_path / "my plane"),
        "--listen",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
        finally:
            process.terminate()
        assert process.wait(10) == 0
    assert lines[0].startswith("Listening on http://127.0.0.1:")
    assert lines[3].endswith(f"kubectl --kubeconfig '{tmp_path}/my plane/admin.kubeconfig' get fleetnodes\n")


def test_without_the_extra_it_says_what_to_install() -> None:
    """Where the plane's libraries are missing the error is one line with the pip command, exit code 71."""
    code = "import sys; sys.modules['uvicorn'] = None; from journeyman.cli import main; main()"
    done = run("-c", code, "plane")
    assert done.returncode == 71
    assert "pip install 'journeyman[plane]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_and_a_taken_folder_have_their_exit_codes(tmp_path: Path) -> None:
    """A port in use exits 71 and a folder in use 73, each with one line that names the owner."""
    with spawn_plane(tmp_path) as plane:
        assert plane.process is not None
        pid = str(plane.process.pid)
        port = run(
            "-m",
            "journeyman",
            "plane",
            "--data-dir",
            str(tmp_path / "x"),
            "--listen",
            f"127.0.0.1:{plane.port}",
        )
        folder = run(
            "-m", "journeyman", "plane", "--data-dir", str(plane.data_dir), "--listen", "127.0.0.1:0"
        )
    assert (port.returncode, folder.returncode) == (71, 73)
    assert f"port {plane.port} on 127.0.0.1 is in use by pid {pid}" in port.stderr
    assert f"another plane (pid {pid}) already runs" in folder.stderr


def test_the_default_folder_is_below_the_state_root(tmp_path: Path) -> None:
    """Without --data-dir the plane lives in the state root of the environment."""
    words = [sys.executable, "-m", "journeyman", "plane", "--listen", "127.0.0.1:0", "--json"]
    environment = os.environ | {"JOURNEYMAN_STATE_ROOT": str(tmp_path)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or lines[-1] not in {"}\n", ""}:
                lines.append(process.stdout.readline())
        finally:
            process.terminate()
    assert json.loads("".join(lines))["dataDir"] == str(tmp_path / "plane")
