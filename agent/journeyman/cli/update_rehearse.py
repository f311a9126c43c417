"""`journeyman update rehearse`: the three outcomes of an update, on this host, for real."""

from __future__ import annotations

import click

from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import local_flags
from journeyman.cli.update_common import JSON, explain
from journeyman.errors import HostError, JourneymanError
from journeyman.settings import Loaded
from journeyman_updater.rehearsal import Scene, UpdaterError, rehearse


@click.command("rehearse", epilog="Example: journeyman update rehearse")
@JSON
@local_flags
def command(*, loaded: Loaded, as_json: bool) -> None:
    """Try a good, a crashing and a hanging release on this host, in a state root of their own.

    Takes half a minute.  Guard, updater and restarts are the real ones, the releases only pretend, and the
    deadlines are short.  The agent of this host goes on, and nothing is left behind.  Exits with 1 if one of
    the three does not end as it has to.
    """
    root = loaded.settings.root.path
    scenes = []
    try:
        for scene in rehearse(root if root.is_dir() else None):
            scenes.append(scene)
            if not as_json:
                print(_sentence(scene))
    except UpdaterError as error:
        raise explain(error) from error
    except OSError as error:
        raise HostError(f"{root} cannot hold a rehearsal: {error}") from error
    if as_json:
        print_json([_facts(scene) for scene in scenes])
    wrong = [scene.behaviour for scene in scenes if not scene.is_as_expected]
    if wrong:
        raise JourneymanError(
            f"the rehearsal of a release that is {', '.join(wrong)} ended otherwise than it has to",
            "Do not let this host follow its control plane before it passes.",
        )


def _sentence(scene: Scene) -> str:
    verdict = "as it has to" if scene.is_as_expected else "NOT as it has to"
    why = f" ({scene.reason})" if scene.reason else ""
    starts = "1 start" if scene.starts == 1 else f"{scene.starts} starts"
    return f"{scene.behaviour:6} {scene.ending}{why} in {scene.seconds:.1f} s, {starts}: {verdict}"


def _facts(scene: Scene) -> dict[str, object]:
    return {
        "release": scene.behaviour,
        "ending": scene.ending,
        "reason": scene.reason,
        "seconds": round(scene.seconds, 2),
        "starts": scene.starts,
        "asExpected": scene.is_as_expected,
        "message": scene.message,
    }
