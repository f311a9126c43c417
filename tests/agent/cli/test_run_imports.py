"""What some commands load: `journeyman run` is what every host pays for, all day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from journeyman.cli import main
code = 0
try:
    main()
except SystemExit as ended:
    code = ended.code
print(code, *sorted(name for name, module in sys.modules.items() if module))
"""
UNWANTED = {"rich", "pygments", "psutil", "journeyman_plane", "xllamacpp"}


@pytest.mark.slow
def test_the_agent_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """No tables, no plane, no model runtime: an agent without a server ends right after its imports."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", SCRIPT, "run", "--state-root", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environ, timeout=60)
    code, *modules = ended.stdout.split()
    assert code == "78", ended.stderr
    assert "structlog" in modules
    unwanted = UNWANTED - {"psutil"} if sys.platform == "darwin" else UNWANTED
    assert not unwanted & {module.partition(".")[0] for module in modules}


@pytest.mark.slow
def test_the_question_for_a_unit_loads_no_updater(tmp_path: Path) -> None:
    """Each update waits for the answer, on small machines too: no network, no keys, no other verbs."""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", SCRIPT, "update", "unit", "--json", "--state-root", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environ, timeout=60)
    answer, _, modules = ended.stdout.partition("\n")
    assert json.loads(answer) == {"format": 1, "files": {}}
    assert "journeyman_updater.installed" in modules.split()
    unwanted = {"httpx", "cryptography", "structlog", "rich", "journeyman_updater.run"}
    assert unwanted.isdisjoint(modules.split())
