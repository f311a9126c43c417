"""Where the `journeyman` command begins: the CLI, and a short way into the host lane.

`journeyman lane run` waits with a person's command, so the words that are usual there are understood
without loading the CLI and the settings, which takes longer than all the rest.  Whatever else is said is
left to the CLI, with its help and its explanations.
"""

from __future__ import annotations

import os
import sys

# A variable of this name is true to type checkers; everything else is loaded where it is needed.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

RUN = ("lane", "run")


def main() -> None:
    """Runs the command line and exits."""
    words = sys.argv[1:]
    if tuple(words[:2]) == RUN:
        code = _run_quickly(words[2:], os.environ)
        if code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            # Nothing is left to tidy up, and the caller waits.
            os._exit(code)
    from journeyman.cli import main as run_cli

    run_cli()


def _run_quickly(words: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """The exit code; None where the CLI is needed."""
    from journeyman.errors import JourneymanError
    from journeyman.lane_client import LaneCommand, run_lane
    from journeyman.place import locate

    said = understood(words)
    if said is None:
        return None
    state_root, as_json = said.pop("state_root", None), said.pop("as_json", False)
    place = locate({"state_root": state_root}, environ)
    if place.named or _names_a_root(place.config_file):
        return None
    try:
        root = os.path.dirname(place.config_file)
        return run_lane(root, LaneCommand(**said), as_json=as_json)
    except JourneymanError as error:
        advice = f"\n  {error.advice}" if error.advice else ""
        sys.stderr.write(f"journeyman: {error.message}{advice}\n")
        return error.exit_code


def understood(words: Sequence[str]) -> dict[str, Any] | None:
    """The options of `lane run` by the names of `LaneCommand`; None if the words are not the usual ones.

    Args:
        words: what follows `journeyman lane run`; the command comes after `--`.
    """
    options: dict[str, tuple[str, Callable[[str], Any]]] = {
        "--ram": ("ram_bytes", _bytes),
        "--disk": ("disk_bytes", _bytes),
        "--vram": ("vram_bytes", _bytes),
        "--cpu": ("cpus", float),
        "--timeout": ("timeout_seconds", _seconds),
        "--name": ("name", str),
        "--state-root": ("state_root", str),
    }
    if "--" not in words:
        return None
    split = list(words).index("--")
    said: dict[str, Any] = {"argv": tuple(words[split + 1 :])}
    rest = iter(words[:split])
    for word in rest:
        if word == "--json":
            said["as_json"] = True
            continue
        name, convert = options.get(word, ("", str))
        try:
            said[name] = convert(next(rest))
        except (ValueError, StopIteration):
            return None
    usual = bool(said["argv"]) and "" not in said and said.get("cpus", 1) >= 0
    return said if usual else None


def _bytes(text: str) -> int:
    from journeyman.core.quantities import bytes_from

    return bytes_from(text)


def _seconds(text: str) -> float:
    from journeyman.core.quantities import seconds_from

    return seconds_from(text)


def _names_a_root(config_file: str) -> bool:
    """Whether a configuration file might lead to another state root."""
    try:
        with open(config_file, "rb") as file:
            return b"state_root" in file.read()
    except OSError:
        return False
