"""The `journeyman` command.

Each command lives in a module of its own that defines `command`, and is imported only when it is called or
asked for help, so that `--version` and `--help` answer in milliseconds.
"""

from __future__ import annotations

import sys

import click

from journeyman import __version__
from journeyman.cli.lazy import LazyGroup
from journeyman.errors import JourneymanError

# Command -> the one line that `journeyman --help` shows, in the order in which a person meets them.
COMMANDS = {
    "up": "Run a whole fleet of one on this machine.",
    "task": "Submit tasks and watch them.",
    "nodes": "List the machines of the fleet.",
    "status": "Ask the agent of this host how it is.",
    "cordon": "Take no new work on this host.",
    "uncordon": "Work again.",
    "drain": "Cordon, and wait until nothing runs.",
    "release": "Publish versions of the agent and roll them out.",
    "update": "Show and steer the updates of this host.",
    "join": "Make this machine a node of a control plane.",
    "leave": "Give this machine's node back.",
    "cluster": "Prepare a Kubernetes cluster for nodes.",
    "preflight": "Say what a cluster lets this node do, and which releases would select it.",
    "install": "Install the agent as a service of this host.",
    "uninstall": "Remove what install has made.",
    "doctor": "Say what is wrong here, and what heals it.",
    "run": "Run the agent of this host in the foreground.",
    "config": "Show the settings and where each came from.",
    "plane": "Run the embedded control plane.",
    "models": "Fetch, list, verify and delete models.",
    "proxy": "Run the OpenAI-compatible endpoint of this host by itself.",
    "lane": "Run a command when this host can afford it.",
    "gates": "Show what the gates say of heat, power, memory and disk, and replay traces.",
    "gate": "Force a gate open or closed for a time.",
    "version": "Print the version.",
}


class Root(LazyGroup):
    """All commands, with help that imports none of them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Root,
    places={name: f"{name.replace('-', '_')}.command" for name in COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: journeyman up --once 'Name three primary colours.'",
)
@click.version_option(__version__, prog_name="journeyman")
def root() -> None:
    """Let a machine outside the cluster earn its keep."""


def main() -> None:
    """Runs the command line and exits; an error that we can explain is one line and an exit code."""
    try:
        root(prog_name="journeyman", standalone_mode=False)
    except JourneymanError as error:
        print(f"journeyman: {error.message}", file=sys.stderr)
        if error.advice:
            print(f"  {error.advice}", file=sys.stderr)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
