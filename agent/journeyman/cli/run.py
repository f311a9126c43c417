"""`journeyman run`: the agent itself."""

from __future__ import annotations

import os
import sys

import click

from journeyman.cli.setting_flags import setting_flags
from journeyman.settings import Loaded


@click.command(
    epilog="Example: journeyman run --server https://10.0.0.5:6443 --token-file ~/.config/journeyman/token"
)
@click.option("--stop-with-stdin", is_flag=True, help="Stop, workers too, when standard input ends.")
@setting_flags
def command(*, loaded: Loaded, stop_with_stdin: bool) -> None:
    """Run the agent of this host in the foreground.

    Exits with 0 after a stop, 75 if it wants to be started again, 78 if a setting is wrong, 73 if another
    agent runs on the state root, 76 if another machine beats under the name of this node.
    """
    # structlog and httpx load rich and a command line of their own where they find them: 100 ms and 4 MB
    # for tables that an agent never prints.  Both do without where an import fails.
    for unwanted in ("rich", "httpx._main"):
        sys.modules.setdefault(unwanted, None)  # type: ignore[arg-type]
    from journeyman.app import run_agent

    sys.exit(run_agent(loaded.settings, os.environ, stop_with_stdin=stop_with_stdin))
