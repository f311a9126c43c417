"""`journeyman install` on real systemd, for the whole machine and for one user, over a reboot."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.adapters.minisign_keys import SecretKey
from tests.support.installable_agent import installable_agent
from tests.support.systemd_container import INSIDE, REPOSITORY, SystemdContainer, booted
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
KEY = SecretKey.generate()
USER, STRANGER = "ada", "mallory"
PLANE = "/srv/plane"
ADDRESS = "127.0.0.1:6480"


@dataclass(frozen=True)
class Kind:
    """One of the two installations.

    Attributes:
        user: who installs; None for root.
        root: where its state root lies.
        units: where its units lie.
        agent: who runs the agent.
    """

    user: str | None
    root: str
    units: str
    agent: str


SYSTEM = Kind(None, "/var/lib/journeyman", "/etc/systemd/system", "journeyman")
OWN = Kind(USER, f"/home/{USER}/.local/share/journeyman", f"/home/{USER}/.config/systemd/user", USER)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdContainer]:
    """A container with a user who lingers, a signed release in /srv, and no Journeyman user."""
    # The same folders, as they are called inside.
    path = [each.replace(str(REPOSITORY), str(INSIDE), 1) for each in sys.path if each]
    artifact = installable_agent(tmp_path_factory.mktemp("artifact") / "made", KEY, path=path)
    with booted() as made:
        made.run("useradd", "--create-home", "--shell", "/bin/sh", USER)
        made.run("loginctl", "enable-linger", USER)
        here = made.tree / "srv/release"
        here.mkdir()
        for file in (artifact, artifact.with_name(artifact.name + ".minisig")):
            shutil.copy(file, here / file.name.replace(artifact.name, "release.tar.gz"))
        (here / "release.pub").write_text(KEY.public.to_file())
        start_plane(made)
        yield made


def start_plane(container: SystemdContainer) -> None:
    """Starts the control plane; it is not what is tested, so nothing starts it at a boot."""
    packages = ":".join(str(INSIDE / room) for room in ("agent", "updater", "plane", "."))
    words = ("-m", "journeyman", "plane", "--data-dir", PLANE, "--listen", ADDRESS)
    container.run("systemd-run", "--unit=plane", f"--setenv=PYTHONPATH={packages}", sys.executable, *words)
    token = container.tree / PLANE.lstrip("/") / "admin.token"
    eventually(token.exists, within_seconds=30)
    for user, place in ((None, "root"), (USER, f"home/{USER}")):
        shutil.copy(token, container.tree / place / "token")
        container.run("chown", user or "root", f"/{place}/token")


def journeyman(container: SystemdContainer, kind: Kind, *words: str, check: bool = True) -> str:
    home = "/root" if kind.user is None else f"/home/{kind.user}"
    return container.python("-m", "journeyman", *words, user=kind.user, check=check, HOME=home)


def install(container: SystemdContainer, kind: Kind, *more: str) -> dict[str, Any]:
    home = "/root" if kind.user is None else f"/home/{kind.user}"
    words = ("--artifact", "/srv/release/release.tar.gz", "--key", "/srv/release/release.pub")
    server = ("--server", f"http://{ADDRESS}", "--token-file", f"{home}/token", "--node-name", kind.agent)
    said: dict[str, Any] = json.loads(
        journeyman(container, kind, "install", "--json", *words, *server, *more)
    )
    return said


def status(container: SystemdContainer, kind: Kind) -> dict[str, Any] | None:
    said = journeyman(container, kind, "status", "--json", "--state-root", kind.root, check=False)
    found: dict[str, Any] | None = json.loads(said) if said else None
    return found


def inside(container: SystemdContainer, path: str) -> Path:
    return container.tree / path.lstrip("/")


def units(container: SystemdContainer, kind: Kind) -> list[str]:
    folder = inside(container, kind.units)
    return sorted(str(path.name) for path in folder.rglob("dev.journeyman*")) if folder.exists() else []


@pytest.mark.parametrize("kind", [SYSTEM, OWN], ids=["system", "user"])
def test_it_is_installed_once_comes_back_and_is_taken_away(container: SystemdContainer, kind: Kind) -> None:
    """READY at once and after a reboot, a second run changes nothing, and what is left is what is listed."""
    users = inside(container, "/etc/passwd").read_text()
    said = install(container, kind)
    assert (said["starts"], said["node"]) == ("boot", kind.agent)
    found = status(container, kind)
    assert found is not None
    assert container.run("stat", "--format=%U", f"/proc/{found['pid']}") == kind.agent
    assert owners(container, kind) == ownership(kind)

    assert install(container, kind)["changes"] == []
    again = status(container, kind)
    assert again is not None
    assert again["pid"] == found["pid"]

    if kind is OWN:
        doctor_finds_and_heals(container, kind)
    else:
        the_group_may_look(container)
        the_guard_goes_back_without_a_state_document(container)

    container.reboot()
    start_plane(container)
    eventually(lambda: status(container, kind), within_seconds=40, every_seconds=0.5)

    removed = json.loads(journeyman(container, kind, "uninstall", "--json", "--state-root", kind.root))
    assert len(removed["files"]) == 4
    assert [line.split(":")[0] for line in removed["left"]] == ["the journal of systemd"]
    assert units(container, kind) == []
    assert not inside(container, kind.root).exists()
    assert inside(container, "/etc/passwd").read_text() == users
    assert status(container, kind) is None


AGENTS = {"agent", "outbox", "workers", "models", "run"}
"""What belongs to the agent's user in a system install; all else at the top of the root is root's."""


def ownership(kind: Kind) -> dict[str, str]:
    """Owner and mode of all that lies at the top of a state root, as the table of the design has it."""
    folders = {"versions", "updater", "keys", "downloads", "logs"}
    files = {"state.json", "journal.jsonl", "install.json", "config.toml", "updater.json"}
    launchers = {"guard", "update-once", "run-guard"}
    mode = {
        **dict.fromkeys(folders | launchers, "755"),
        **dict.fromkeys(files, "644"),
        **dict.fromkeys(AGENTS, "700"),
        "update.lock": "600",
        ".": "755" if kind is SYSTEM else "700",
    }
    if kind is SYSTEM:
        mode["run"] = "710"
    keeper = kind.user or "root"
    return {name: f"{kind.agent if name in AGENTS else keeper} {bits}" for name, bits in mode.items()}


def owners(container: SystemdContainer, kind: Kind) -> dict[str, str]:
    names = [".", *(path.name for path in inside(container, kind.root).iterdir())]
    found = container.run("stat", "--format=%U %a", *(f"{kind.root}/{name}" for name in names))
    return dict(zip(names, found.splitlines(), strict=True))


def doctor(container: SystemdContainer, kind: Kind) -> list[tuple[str, str]]:
    """Finding and advice of each check that is not well."""
    said = journeyman(container, kind, "doctor", "--json", "--state-root", kind.root, check=False)
    return [(check["finding"], check["advice"]) for check in json.loads(said) if not check["is_well"]]


def the_group_may_look(container: SystemdContainer) -> None:
    """Nobody has to name the state root; a member of the group sees the status, and changes nothing."""
    found = status(container, SYSTEM)
    assert found is not None

    def ask(user: str, *words: str) -> str:
        # A home without a node of its own.
        return container.python("-m", "journeyman", *words, user=user, check=False, HOME="/nonexistent")

    container.run("usermod", "--append", "--groups", SYSTEM.agent, USER)
    container.run("useradd", "--system", STRANGER)
    for user in ("root", SYSTEM.agent, USER):
        assert json.loads(ask(user, "status", "--json"))["pid"] == found["pid"], user
        assert json.loads(ask(user, "gates", "--json")), user
    assert ask(USER, "cordon", "--json") == ""
    assert ask(STRANGER, "status", "--json") == ""
    assert ask(STRANGER, "status", "--json", "--state-root", SYSTEM.root) == ""
    after = status(container, SYSTEM)
    assert after is not None
    assert after["holds"] == found["holds"]
    assert json.loads(ask(SYSTEM.agent, "cordon", "--json"))["holds"] != found["holds"]
    ask("root", "uncordon")
    container.run("userdel", STRANGER)
    container.run("gpasswd", "--delete", USER, SYSTEM.agent)


def the_guard_goes_back_without_a_state_document(container: SystemdContainer) -> None:
    """It runs as the agent's user, and can still read what was committed in the journal."""
    found = status(container, SYSTEM)
    assert found is not None
    state = inside(container, SYSTEM.root) / "state.json"
    kept = state.read_bytes()
    state.write_text("damaged")
    container.run("systemctl", "restart", "dev.journeyman.agent")
    state.write_bytes(kept)
    again = status(container, SYSTEM)
    assert again is not None
    assert again["pid"] != found["pid"]
    assert (
        container.run(
            "setpriv",
            f"--reuid={SYSTEM.agent}",
            "--clear-groups",
            "test",
            "-r",
            f"{SYSTEM.root}/journal.jsonl",
        )
        == ""
    )


def doctor_finds_and_heals(container: SystemdContainer, kind: Kind) -> None:
    """A unit that was changed, one that nothing starts, masked, given up; and a user who does not linger."""
    assert doctor(container, kind) == []
    unit = inside(container, kind.units) / "dev.journeyman.agent.service"
    with unit.open("a") as file:
        file.write("# changed\n")
    found = doctor(container, kind)
    assert [finding.split(":")[0] for finding, _ in found] == [
        "what is installed is not what belongs there",
        "systemd has an older unit in memory than on disk",
    ]
    assert install(container, kind)["changes"]
    assert doctor(container, kind) == []

    runtime = f"XDG_RUNTIME_DIR=/run/user/{container.run('id', '-u', kind.agent)}"

    def run(*words: str, check: bool = True) -> None:
        container.run("env", runtime, *words, user=kind.user, check=check)

    def follow(advice: str) -> None:
        for command in advice.split("`")[1::2]:
            run(*shlex.split(command))

    run("systemctl", "--user", "disable", unit.name)
    [(finding, advice)] = doctor(container, kind)
    assert finding == "the unit is disabled: nothing starts it"
    follow(advice)
    assert doctor(container, kind) == []

    # systemctl masks no unit that has a file of its own, so an admin removes that first.
    unit.unlink()
    run("systemctl", "--user", "mask", unit.name)
    [_, (finding, advice)] = doctor(container, kind)
    assert finding == "the unit is masked"
    follow(advice)
    assert install(container, kind)["changes"]
    assert doctor(container, kind) == []

    limit = unit.with_name(f"{unit.name}.d") / "limit.conf"
    container.run("mkdir", f"{kind.units}/{limit.parent.name}", user=kind.user)
    limit.write_text("[Unit]\nStartLimitIntervalSec=600\nStartLimitBurst=2\n")
    run("systemctl", "--user", "daemon-reload")
    for _ in range(3):
        run("systemctl", "--user", "restart", unit.name, check=False)
    advised = dict(doctor(container, kind))
    follow(advised["systemd has given up starting it (start limit)"])
    assert doctor(container, kind) == []
    limit.unlink()
    limit.parent.rmdir()
    run("systemctl", "--user", "daemon-reload")

    (inside(container, "/var/lib/systemd/linger") / USER).unlink()
    [(finding, advice)] = doctor(container, kind)
    assert finding.startswith("it starts at login only")
    container.run(*shlex.split(advice.split("`")[1]), USER)
    assert doctor(container, kind) == []


def test_it_is_not_installed_beside_another_agent(container: SystemdContainer) -> None:
    """LLMKube's own agent is a reason to refuse, and nothing is made."""
    unit = inside(container, "/etc/systemd/system/llmkube-foreman-agent.service")
    unit.write_text("[Service]\nExecStart=/bin/sleep 600\n")
    container.run("systemctl", "daemon-reload")
    container.run("systemctl", "start", unit.name)
    try:
        words = ("install", "--artifact", "/srv/release/release.tar.gz", "--server", f"http://{ADDRESS}")
        with pytest.raises(AssertionError, match=f"ended with 71\n\njourneyman: .*{unit.name}"):
            journeyman(container, SYSTEM, *words)
        assert not inside(container, SYSTEM.root).exists()
    finally:
        container.run("systemctl", "stop", unit.name)
        unit.unlink()
