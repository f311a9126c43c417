"""The service files that people install are what the renderers say, and the managers accept them."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman_updater.core.service_files.runit import (
    RunitSettings,
    render_runit,
)
from journeyman_updater.core.service_files.systemd import (
    AGENT_UNIT,
    SystemdSettings,
    render_systemd,
)
from tests.support.debian import ensure_debian_package

REPOSITORY = Path(__file__).resolve().parents[4]
SYSTEM = SystemdSettings(
    root="/var/lib/journeyman",
    guard="/var/lib/journeyman/guard",
    updater="/var/lib/journeyman/updater/run",
    user="journeyman",
)
USER = replace(
    SYSTEM,
    root="/home/ada/.local/share/journeyman",
    guard="/home/ada/.local/share/journeyman/guard",
    updater="/home/ada/.local/share/journeyman/updater/run",
    user="",
)
PLAIN = RunitSettings(
    root="/var/lib/journeyman",
    guard="/var/lib/journeyman/guard",
    updater="/var/lib/journeyman/updater/run",
    user="journeyman",
    path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    log_folder="/var/log/journeyman",
)


def references() -> dict[str, str]:
    """Every reference file by its path in the repository, rendered."""
    found = {f"systemd/system/{name}": text for name, text in render_systemd(SYSTEM).items()}
    found |= {f"systemd/user/{name}": text for name, text in render_systemd(USER).items()}
    for service, files in render_runit(PLAIN).items():
        found |= {f"proot/runit/{service}/{name}": text for name, text in files.items()}
    return found


@pytest.mark.parametrize("path", sorted(references()))
def test_the_reference_files_are_what_is_rendered(path: str) -> None:
    """Each file below systemd/ and proot/ is byte for byte what the renderer makes."""
    assert (REPOSITORY / path).read_text() == references()[path]


def test_no_reference_file_is_left_over() -> None:
    """No file lies there that nothing renders."""
    folders = ("systemd/system", "systemd/user", "proot/runit")
    found = {
        str(path.relative_to(REPOSITORY))
        for folder in folders
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file()
    }
    assert found == set(references())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: systemd is part of Linux")
@pytest.mark.parametrize("user", ["", "root"])
def test_systemd_accepts_paths_of_any_spelling(tmp_path: Path, user: str) -> None:
    """Blanks, percent and dollar signs in paths reach systemd as they are; it forbids quotes in programs."""
    ensure_debian_package("systemd", "systemd-analyze")
    odd = tmp_path / "state root of 100%n at $HOME"
    odd.mkdir()
    program = odd / "guard"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    settings = replace(SYSTEM, root=str(odd), guard=str(program), updater=str(program), user=user)
    units = render_systemd(settings)
    for name, text in units.items():
        (tmp_path / name).write_text(text)
    scope = [] if user else ["--user"]
    checked = subprocess.run(
        ["systemd-analyze", *scope, "verify", *(str(tmp_path / name) for name in units)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in checked.stderr.splitlines() if "dev.journeyman" in line] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: systemd is part of Linux")
def test_the_exposure_of_the_system_unit_is_what_the_docs_say() -> None:
    """Systemd's own rating of the unit has not become worse."""
    ensure_debian_package("systemd", "systemd-analyze")
    unit = REPOSITORY / "systemd" / "system" / AGENT_UNIT
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=56", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unrecognized option" in rated.stderr:
        pytest.skip("cannot run here: this systemd-analyze rates loaded units alone")
    found = re.search(r"exposure level for .*: ([0-9.]+)", rated.stdout)
    assert found is not None, rated.stderr
    # A later systemd may look at more, so the number itself is that of the one it was taken from.
    assert rated.returncode == 0 or float(found[1]) < 6.5, rated.stdout
    assert "5.6 of 10" in (REPOSITORY / "docs" / "services.md").read_text()


@pytest.mark.parametrize("path", [path for path in sorted(references()) if path.startswith("proot/")])
def test_scripts_are_sh(path: str) -> None:
    """Each script parses as POSIX sh."""
    checked = subprocess.run(
        ["/bin/sh", "-n"], input=references()[path], text=True, capture_output=True, check=False
    )
    assert checked.stderr == ""


def test_nvidia_modprobe_runs_as_root_before_the_agent() -> None:
    """Where the host has it, the devices that CUDA needs are made before the agent loses setuid programs."""
    unit = render_systemd(replace(SYSTEM, nvidia_modprobe="/usr/bin/nvidia-modprobe"))[AGENT_UNIT]
    assert "ExecStartPre=-+/usr/bin/nvidia-modprobe -c 0 -u\n" in unit
    assert "modprobe" not in render_systemd(SYSTEM)[AGENT_UNIT].lower().replace("kernelmodules", "")
