"""The one true matrix of who may import whom; design.md §1 in code."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = {
    "journeyman": REPOSITORY / "agent" / "journeyman",
    "journeyman_updater": REPOSITORY / "updater" / "journeyman_updater",
    "journeyman_plane": REPOSITORY / "plane" / "journeyman_plane",
}

# What a pure room may not touch: it decides, others act.
IMPURE = {
    "asyncio", "logging", "os", "pathlib", "random", "selectors", "shutil", "signal", "socket",
    "sqlite3", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip

FLOORS = {"errors", "model"}
BELOW_ADAPTERS = FLOORS | {"ports", "core"}

# room -> rooms of the same package that it may import.  A room may import itself only where it is listed.
ROOMS: dict[str, dict[str, set[str]]] = {
    "journeyman": {
        "__init__": set(),
        "__main__": {"entry"},
        # The short way into the lane, or the CLI.
        "entry": {"cli", "core", "errors", "lane_client", "place"},
        "place": set(),
        "errors": set(),
        "model": {"model", "errors"},
        "ports": {"errors", "model", "ports"},
        "waiting": {"ports"},
        "core": BELOW_ADAPTERS,
        "settings": FLOORS | {"core", "place", "settings"},
        # An adapter does what a pure function has decided: which error a reply is, which name a node gets.
        # Adapters share small helpers such as `process_watch`.
        "adapters": FLOORS | {"ports", "settings", "core", "control", "adapters"},
        # The control socket's format and address, for the server in adapters/ and for its clients alike.
        "control": FLOORS,
        # The other end of `journeyman lane run`, apart from the CLI as it must load fast.
        "lane_client": FLOORS | {"control"},
        # The lives of model servers, for the loop that has them all.
        "serving": BELOW_ADAPTERS | {"settings", "waiting", "serving"},
        # What the control plane tells, for the loops that act on it.
        "following": BELOW_ADAPTERS | {"settings", "waiting", "following"},
        # Takes back what a node has registered, for its agent and for one that leaves.
        "withdrawing": BELOW_ADAPTERS,
        # Asks for a certificate, for a join and for the loop that renews it.
        "enrolment": BELOW_ADAPTERS,
        # What the loops that renew a credential have in common.
        "renewing": BELOW_ADAPTERS,
        "loops": BELOW_ADAPTERS
        | {"settings", "waiting", "serving", "following", "withdrawing", "enrolment", "renewing"},
        # One endpoint for all models; apart from workers/, as people can run it, too.
        "proxy": FLOORS | {"core", "proxy"},
        # Workers share small helpers such as `telling`.
        "workers": FLOORS | {"core", "proxy", "workers"},
        # What the commands for people do on a control plane.
        "client": FLOORS | {"ports", "settings", "adapters", "__init__"},
        # Composers: of the gates and the tasks of this host, of all parts of the daemon, and of their life.
        "host_gates": BELOW_ADAPTERS | {"settings", "adapters", "loops"},
        # What `journeyman release` does there: judging and signing are the updater's.
        "releases": FLOORS | {"ports", "settings", "adapters", "client"},
        # What `journeyman join` and `leave` do.
        "joining": BELOW_ADAPTERS
        | {"joining", "settings", "adapters", "client", "control", "withdrawing", "enrolment", "__init__"},
        # What `journeyman install` does; programs, units and users are the updater's.
        "installation": BELOW_ADAPTERS
        | {"installation", "joining", "settings", "adapters", "client", "control", "__init__"},
        # What `journeyman preflight` asks a cluster.
        "preflight": FLOORS | {"ports", "core", "settings", "adapters", "client"},
        # What `journeyman models` does with the store of a state root.
        "models": BELOW_ADAPTERS | {"settings", "adapters"},
        # Looks at all of it; files and services are looked at by the updater, which made them.
        "doctor": BELOW_ADAPTERS | {"installation", "settings", "adapters", "client", "control", "__init__"},
        "node_tasks": BELOW_ADAPTERS | {"settings", "loops"},
        "reachable": BELOW_ADAPTERS | {"settings", "adapters", "loops", "__init__"},
        "parts": BELOW_ADAPTERS
        | {
            "settings",
            "adapters",
            "loops",
            "serving",
            "host_gates",
            "node_tasks",
            "reachable",
            "credentials",
            "__init__",
        },
        # Which credential of this node has to be renewed, and by which loop.
        "credentials": BELOW_ADAPTERS
        | {"settings", "adapters", "loops", "enrolment", "renewing", "__init__"},
        # What the parts do when the host goes and comes back.
        "farewell": BELOW_ADAPTERS | {"settings", "adapters", "loops", "parts"},
        "app": BELOW_ADAPTERS | {"settings", "adapters", "loops", "parts", "farewell", "__init__"},
        "up": BELOW_ADAPTERS | {"settings", "adapters", "client", "control"},
        # Replaying a trace through the gates is pure and needs no agent, so the CLI may do it itself.
        "cli": FLOORS
        | {
            "cli",
            "settings",
            "app",
            "client",
            "releases",
            "installation",
            "joining",
            "preflight",
            "doctor",
            "models",
            "up",
            "control",
            "lane_client",
            "proxy",
            "__init__",
            "ports",
            "core",
        },
    },
    "journeyman_updater": {
        "__init__": set(),
        "__main__": {"cli"},
        "contract": {"contract"},
        "errors": set(),
        "model": {"model", "errors"},
        "ports": {"errors", "model", "contract"},
        "core": BELOW_ADAPTERS | {"contract"},
        "settings": FLOORS | {"contract"},
        # Fetching and unpacking ask the pure rules at each hop and at each member.
        "adapters": FLOORS | {"ports", "contract", "adapters", "core"},
        # A step may import steps/base.py and the helpers for trees and proofs beside it; it never
        # calls a step.
        "steps": BELOW_ADAPTERS | {"contract", "steps"},
        # The order of the steps, over ports alone, so that the crash suite can run it on its own disk.
        "transaction": BELOW_ADAPTERS | {"contract", "steps"},
        # What the transaction would do, by the same questions.
        "forecast": BELOW_ADAPTERS | {"contract", "steps"},
        "shim": {"contract", "shim_output"},
        "shim_output": set(),
        "guard": set(),
        "parent": set(),
        # The real ports of one state root.
        "composition": BELOW_ADAPTERS | {"contract", "settings", "adapters", "steps"},
        "run": BELOW_ADAPTERS
        | {
            "contract",
            "settings",
            "adapters",
            "steps",
            "transaction",
            "forecast",
            "renewal",
            "composition",
        },
        # How it replaces itself, composed apart as run has enough to compose.
        "renewal": BELOW_ADAPTERS | {"contract", "settings", "adapters", "steps"},
        # Two more composers: what whoever publishes needs, and the first release of a state root.
        "publish": BELOW_ADAPTERS | {"adapters", "steps"},
        "bootstrap": BELOW_ADAPTERS
        | {"contract", "settings", "adapters", "steps", "run", "publish", "renewal"},
        # What an installation has noted, its making and removal, and the look at it afterwards.
        "installed": BELOW_ADAPTERS | {"contract", "adapters"},
        "installation": BELOW_ADAPTERS
        | {"contract", "settings", "adapters", "run", "bootstrap", "installed"},
        "checkup": BELOW_ADAPTERS | {"contract", "adapters", "run", "installed"},
        # Two more: one judges a file that lies here, one rehearses with the real guard and parent.
        "verify": BELOW_ADAPTERS | {"contract", "settings", "adapters", "steps", "run", "publish"},
        "rehearsal": BELOW_ADAPTERS
        | {"contract", "settings", "adapters", "steps", "run", "guard", "parent", "__init__"},
        "cli": FLOORS | {"contract", "settings", "run"},
    },
    "journeyman_plane": {
        "__init__": set(),
        "errors": set(),
        "model": {"model", "errors"},
        "ports": {"errors", "model"},
        "core": BELOW_ADAPTERS,
        "settings": FLOORS,
        "adapters": FLOORS | {"ports", "adapters", "core"},
        "http": BELOW_ADAPTERS | {"http"},
        "loops": BELOW_ADAPTERS,
        "run": BELOW_ADAPTERS | {"settings", "adapters", "http", "loops"},
    },
}

# package -> prefixes of our other packages that it may import, by room ("*" is any room).
ACROSS: dict[str, dict[str, set[str]]] = {
    "journeyman": {
        "*": {"journeyman_updater.contract"},
        "cli": {
            "journeyman_updater.contract",
            "journeyman_updater.run",
            "journeyman_updater.bootstrap",
            "journeyman_updater.installation",
            "journeyman_updater.installed",
            "journeyman_updater.rehearsal",
            "journeyman_updater.verify",
            "journeyman_plane.run",
        },
        "releases": {"journeyman_updater.publish"},
        "installation": {"journeyman_updater.contract", "journeyman_updater.installation"},
        "joining": {"journeyman_updater.contract", "journeyman_updater.installation"},
        "doctor": {"journeyman_updater.checkup"},
    },
    "journeyman_updater": {"*": set()},
    "journeyman_plane": {
        "*": {"journeyman.model", "journeyman.errors"},
        # write_durably: tokens, keys and certificates survive a power cut whole or not at all.
        # minisign_keys:
        # the release key is made in the one format that the updater reads.
        "adapters": {
            "journeyman.errors",
            "journeyman_updater.contract",
            "journeyman_updater.adapters.minisign_keys",
            "journeyman_updater.errors",
        },
    },
}

PURE_ROOMS = {"core", "model"}

THIRD_PARTY: dict[str, dict[str, set[str]]] = {
    "journeyman": {
        "errors": set(),
        "ports": set(),
        "model": {"pydantic"},
        "core": {"pydantic"},
        "settings": {"pydantic", "pydantic_settings"},
        "adapters": {
            *("certifi", "httpx", "psutil", "cryptography", "tenacity", "structlog", "yaml", "jeepney"),
        },
        "loops": {"structlog", "tenacity"},
        "serving": {"structlog"},
        "following": {"structlog"},
        "renewing": {"structlog"},
        # psutil: who has our port.
        "proxy": {"h11", "psutil"},
        "workers": {"httpx", "psutil", "xllamacpp"},
        "app": {"structlog", "httpx", "psutil", "pydantic"},
        "up": {"structlog", "httpx", "pydantic"},
        "cli": {"click", "rich", "yaml"},
    },
    "journeyman_updater": {"adapters": {"httpx", "cryptography"}, "run": {"httpx", "cryptography"}},
    "journeyman_plane": {
        "model": {"pydantic", "yaml"},
        "core": {"jsonschema", "pydantic"},
        # psutil: the pid of whoever has our port.
        "adapters": {"cryptography", "psutil", "structlog", "yaml"},
        "http": {"starlette", "jsonschema", "yaml", "structlog"},
        "loops": {"structlog"},
        "run": {"uvicorn", "starlette", "structlog", "cryptography"},
    },
}


def files_of(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGES[package].rglob("*.py")):
        parts = path.relative_to(PACKAGES[package]).with_suffix("").parts
        yield parts[0], path


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """The absolute names that a file imports; `from a import b` gives both `a` and `a.b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; name the whole path"
            yield node.lineno, node.module or ""


CASES = [
    pytest.param(package, room, path, id=str(path.relative_to(REPOSITORY)))
    for package in PACKAGES
    for room, path in files_of(package)
]


@pytest.mark.parametrize(("package", "room", "path"), CASES)
def test_a_room_imports_only_the_rooms_below_it(package: str, room: str, path: Path) -> None:
    """Each file imports only what the matrix allows to its room."""
    assert room in ROOMS[package], f"{path} lies in no room of the matrix"
    wrong = []
    for line, name in imports_of(path):
        top, _, rest = name.partition(".")
        if top == package:
            target = rest.split(".")[0] or "__init__"
            allowed = target in ROOMS[package][room]
        elif top in PACKAGES:
            prefixes = ACROSS[package].get(room, ACROSS[package]["*"])
            allowed = any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)
        elif top in sys.stdlib_module_names:
            allowed = not (room in PURE_ROOMS and top in IMPURE)
        else:
            allowed = top in THIRD_PARTY[package].get(room, set())
        if not allowed:
            wrong.append(f"{path.relative_to(REPOSITORY)}:{line} may not import {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("package", "room", "path"), CASES)
def test_pure_rooms_do_not_read_the_clock(package: str, room: str, path: Path) -> None:
    """core/ and model/ get the time as an argument."""
    if room not in PURE_ROOMS:
        return
    text = path.read_text()
    for call in ("datetime.now(", "datetime.utcnow(", "date.today("):
        assert call not in text, f"{path} calls {call})"


def test_the_updater_imports_without_the_agents_libraries() -> None:
    """A broken agent cannot break its own repair: no file of the updater needs more than it declares."""
    allowed = {"httpx", "cryptography", "journeyman_updater"}
    for _, path in files_of("journeyman_updater"):
        for line, name in imports_of(path):
            top = name.split(".")[0]
            assert top in allowed or top in sys.stdlib_module_names, f"{path}:{line} imports {name}"
