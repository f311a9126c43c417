"""Which files become the first release, and what is said where that cannot be told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from journeyman_updater.adapters.snapshot import PACKAGES, running_files

UPDATER = Path(__file__).resolve().parents[3] / "updater"
ASK = """import sys
sys.path[:0] = sys.argv[1:]
from journeyman_updater.adapters.snapshot import running_files
from journeyman_updater.errors import HostError
try:
    print(*running_files(), sep="\\n")
except HostError as error:
    print(error.message)
"""


def test_what_runs_is_ours_and_what_it_needs() -> None:
    """Packages of this checkout, what they import with native modules, and none of what develops them."""
    found = running_files()
    tops = {name.partition("/")[0] for name in found}
    assert {*PACKAGES, "httpx", "pydantic", "cryptography", "starlette"} <= tops
    assert not tops & {"pytest", "mypy", "ruff", "hypothesis"}
    assert any(name.startswith("pydantic_core/") and name.endswith(".so") for name in found)
    assert not [name for name in found if "__pycache__" in name or name.endswith((".pth", "RECORD"))]


def ask(*path: Path) -> str:
    """What an interpreter says that sees that path and nothing that is installed."""
    command = [sys.executable, "-I", "-S", "-c", ASK, *map(str, path), str(UPDATER)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def lay_distribution(folder: Path, name: str, *requires: str, files: str | None = "") -> None:
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir(parents=True)
    lines = [f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {each}" for each in requires)]
    (facts / "METADATA").write_text("\n".join(lines) + "\n")
    if files is not None:
        (facts / "RECORD").write_text(files + f"{facts.name}/METADATA,,\n")


def test_a_folder_that_nothing_installed_is_no_distribution() -> None:
    """Where nobody can say what belongs to us, nothing is copied."""
    assert ask().endswith("from a folder that nothing has installed")


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        (["nothere>=1"], "something that Journeyman needs is missing here"),
        (["unknown"], "it is not known which files belong to unknown"),
    ],
)
def test_what_is_missing_is_said(requires: list[str], says: str, tmp_path: Path) -> None:
    """A requirement that is not here, or whose files nobody has listed, is named."""
    lay_distribution(tmp_path, "journeyman", *requires)
    lay_distribution(tmp_path, "unknown", files=None)
    assert ask(tmp_path).endswith(says)


def test_requirements_are_followed(tmp_path: Path) -> None:
    """Extras in brackets, nested needs and whole extras go along; other platforms and half extras do not."""
    needs = (
        "first[fast]",
        'windows; sys_platform == "win32"',
        "whole; extra == 'plane'",
        "half; extra == 'native'",
        "nothere; extra == 'native'",
    )
    lay_distribution(tmp_path, "journeyman", *needs, files="../../bin/journeyman,,\nours.pth,,\n")
    lay_distribution(tmp_path, "first", "second (>=1)", "third; extra == 'fast'", "slow; extra == 'slow'")
    for name in ("second", "third", "slow", "whole", "half"):
        (tmp_path / f"{name}.py").write_text("")
        lay_distribution(tmp_path, name, "first" if name == "third" else "second", files=f"{name}.py,,\n")
    found = {line.removesuffix(".py") for line in ask(tmp_path).splitlines() if "/" not in line}
    assert found == {"second", "third", "whole"}
