"""`journeyman leave`: gives this machine's node back."""

from __future__ import annotations

import sys

import click

from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import local_flags
from journeyman.joining import leave
from journeyman.settings import Loaded

WORDS = {
    "deleted": "The FleetNode {name} is gone, and its credential with it.",
    "parted": "The FleetNode {name} is NotReady; the admin may delete it: kubectl delete fleetnode {name}",
    "unknown": "The FleetNode {name} is still there; tell the admin: journeyman plane revoke {name}",
}


@click.command(epilog="Example: journeyman leave")
@click.option("--force", is_flag=True, help="Leave with results undelivered, or without an answer.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@local_flags
def command(*, loaded: Loaded, force: bool, as_json: bool) -> None:
    """Stop the agent, hand back its tasks, delete its FleetNode, and remove what a join has written.

    Models stay, and so does an installed service, which waits for the next join; `journeyman uninstall` takes
    that away. Exits with 71 while results are undelivered.
    """
    left = leave(loaded.settings, lambda line: print(f"journeyman: {line}", file=sys.stderr), force=force)
    if as_json:
        print_json(vars(left))
        return
    for task in left.tasks:
        print(f"handed back {task}")
    for registration in left.registrations:
        print(f"withdrew {registration}")
    for path in left.removed:
        print(f"removed {path}")
    print(WORDS[left.node].format(name=left.name))
