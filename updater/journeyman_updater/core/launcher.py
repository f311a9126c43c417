"""The few lines of sh that service files and timers name: they find a Python, and become what they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from journeyman_updater.contract import StateRoot

# A recorded path can vanish with an upgrade of the system's Python; these are tried after it.
FALLBACKS = ("python3", "/usr/bin/python3", "/usr/local/bin/python3", "/opt/homebrew/bin/python3")
OLDEST = "import sys; sys.exit(sys.version_info < (3, 9))"


_COPY = re.compile(r"/updater/([0-9a-f]{12})/lib\b")


def copy_named_in(launcher: str) -> str | None:
    """The copy below `updater/` that a launcher starts, or None if it starts none."""
    found = _COPY.search(launcher)
    return found[1] if found else None


def parent_in(copy: str) -> str:
    """The program of the parent in a copy of a release."""
    return f"{copy}/lib/journeyman_updater/parent.py"


def render_launchers(
    root: StateRoot, copy: str, *, recorded_python: str, lowest: str, highest: str
) -> dict[str, str]:
    """The texts of all launchers of a state root, by the names of their files.

    Args:
        root: the state root.
        copy: the path of the copy of a release that they start.
        recorded_python: the interpreter that was found good.
        lowest: the first Python that the copy runs on, such as `3.11`.
        highest: the last one.
    """
    guard = f"{copy}/lib/journeyman_updater/guard.py"
    arguments = (
        *("--root", str(root.path), "--guard", str(root.guard_launcher)),
        *("--updater", str(root.updater_launcher), "--", "run", "--state-root", str(root.path)),
    )
    return {
        root.guard_launcher.name: render_launcher(guard, recorded_python=recorded_python),
        root.updater_launcher.name: render_updater_launcher(
            f"{copy}/lib", recorded_python=recorded_python, lowest=lowest, highest=highest
        ),
        root.parent_launcher.name: render_launcher(
            parent_in(copy), recorded_python=recorded_python, arguments=arguments
        ),
    }


def render_launcher(program: str, *, recorded_python: str, arguments: Sequence[str] = ()) -> str:
    """The text of a launcher of guard or parent, which need nothing but a Python.

    Args:
        program: the path of guard.py or parent.py.
        recorded_python: the interpreter that was found good when it was installed.
        arguments: come before those that the launcher is given.
    """
    words = " ".join(shlex.quote(word) for word in (program, *arguments))
    # What starts a release looks there first, and then for itself.
    start = f'JOURNEYMAN_PYTHON=$python exec "$python" -I -S {words} "$@"'
    return _render((recorded_python, *FALLBACKS), OLDEST, start, "Python 3.9 or later")


def render_updater_launcher(library: str, *, recorded_python: str, lowest: str, highest: str) -> str:
    """The text of the launcher of the updater, which needs a Python that its libraries are made for.

    Args:
        library: the folder of its libraries.
        recorded_python: the interpreter that was found good when it was installed.
        lowest: the first Python that will do, such as `3.11`.
        highest: the last one.
    """
    first, last = (tuple(int(part) for part in text.split(".")) for text in (lowest, highest))
    names = (f"python{first[0]}.{minor}" for minor in range(last[1], first[1] - 1, -1))
    check = f"import sys; sys.exit(not {first} <= sys.version_info[:2] <= {last})"
    # -P keeps the current folder out of the import path, -S what is installed here; the copy stays as it is.
    start = f'PYTHONPATH={shlex.quote(library)} exec "$python" -S -P -B -m journeyman_updater "$@"'
    return _render((recorded_python, *names, *FALLBACKS), check, start, f"Python {lowest} to {highest}")


def _render(candidates: Sequence[str], condition: str, start: str, wanted: str) -> str:
    paths = " ".join(shlex.quote(path) for path in candidates)
    check = f'command -v "$python" >/dev/null 2>&1 && "$python" -I -S -c {shlex.quote(condition)} 2>/dev/null'
    return (
        f"#!/bin/sh\n"
        f"for python in {paths}; do {check} && {start}; done\n"
        f'echo "journeyman: no {wanted} was found; install one" >&2; exit 78\n'
    )
