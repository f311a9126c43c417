"""`journeyman update`: the group of what shows and steers the updates of this host."""

from __future__ import annotations

import click

from journeyman.cli.lazy import LazyGroup

# The updater asks each new release for its unit, within a deadline: that must not cost what the others need.
PLACES = {
    **{
        verb: f"update_verbs.{verb}"
        for verb in ("status", "history", "apply", "rollback", "pin", "unpin", "allow")
    },
    **{
        verb: f"update_{verb}.command"
        for verb in ("check", "verify", "rehearse", "window", "unit", "bootstrap")
    },
}


@click.group(cls=LazyGroup, places=PLACES, epilog="Example: journeyman update status --json")
def command() -> None:
    """Show and steer the updates of this host; works without the control plane and without the agent."""
