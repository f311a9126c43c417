"""The launchers, run by a real sh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from journeyman_updater.core.launcher import render_launcher, render_updater_launcher

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def run(text: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", text, "launcher", *words], capture_output=True, text=True, check=False, timeout=30
    )


@pytest.mark.slow
def test_arguments_of_the_launcher_come_before_those_of_its_caller(tmp_path: Path) -> None:
    """Both arrive as they are, spaces included."""
    program = tmp_path / "a program.py"
    program.write_text("import sys; print(sys.argv[1:])")
    text = render_launcher(str(program), recorded_python=sys.executable, arguments=("--root", "a b"))
    assert run(text, "c d").stdout == "['--root', 'a b', 'c d']\n"


@pytest.mark.slow
def test_the_updater_gets_its_own_libraries_and_a_python_that_fits(tmp_path: Path) -> None:
    """It imports from its copy alone, leaves no bytecode there, and refuses a Python it is not made for."""
    package = tmp_path / "a library" / "journeyman_updater"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys, journeyman_updater\nprint(journeyman_updater.__file__)")
    library = str(package.parent)
    text = render_updater_launcher(library, recorded_python=sys.executable, lowest=HERE, highest=HERE)
    assert run(text).stdout == f"{package}/__init__.py\n"
    assert sorted(path.name for path in package.iterdir()) == ["__init__.py", "__main__.py"]
    unfit = render_updater_launcher(library, recorded_python=sys.executable, lowest="3.98", highest="3.99")
    failed = run(unfit)
    assert (failed.returncode, failed.stdout) == (78, "")
    assert "3.98 to 3.99" in failed.stderr
