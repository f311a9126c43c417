"""`journeyman uninstall`: takes away what `journeyman install` has made."""

from __future__ import annotations

import click

from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import local_flags
from journeyman.installation import explained
from journeyman.settings import Loaded
from journeyman_updater.installation import Removed, read_made, remove


@click.command(epilog="Example: sudo journeyman uninstall")
@click.option("--purge", is_flag=True, help="Delete models and undelivered results, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@local_flags
def command(*, loaded: Loaded, purge: bool, as_json: bool) -> None:
    """Stop agent and workers, and remove all that `journeyman install` has made.

    Where nothing is installed it says so, and exits with 0, too.

    Models, undelivered results, an embedded plane, and what was there before stay unless --purge is given.
    """
    root = loaded.settings.root
    with explained(root):
        made = read_made(root)
        removed = remove(root, made, purge=purge) if made else Removed("", [], [], [])
    if as_json:
        print_json(vars(removed))
        return
    if made is None:
        print(f"Nothing that `journeyman install` made is in {root.path}.")
        print("Next: name another state root with --state-root; a system install needs sudo")
        return
    if removed.trial:
        print(f"cancelled the trial of {removed.trial}")
    for name in removed.workers:
        print(f"ended the worker {name}")
    for line in removed.files:
        print(f"removed {line}")
    print(f"Uninstalled from {root.path}." if not removed.left else "Uninstalled. What is left:")
    for line in removed.left:
        print(f"  {line}")
