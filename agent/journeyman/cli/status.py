"""`journeyman status`: this host, as its own agent sees it."""

from __future__ import annotations

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import local_flags
from journeyman.control import call
from journeyman.settings import Loaded

LAST_WORDS = "lastWords"


@click.command(epilog="Example: journeyman status --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@local_flags
def command(*, loaded: Loaded, as_json: bool) -> None:
    """Ask the running agent of this host how it is.  Needs no network.

    Exits with 71 if no agent runs on the state root.
    """
    show(call(loaded.settings.root, "status"), as_json=as_json)


def show(status: dict[str, object], *, as_json: bool) -> None:
    """Prints what the agent said of itself."""
    if as_json:
        print_json(status)
        return
    tables = {"holds", "tasks", "models", "services", "registrations", "deadLetters"}
    facts = [(key, value) for key, value in status.items() if key not in {*tables, "proxy"}]
    proxy = status.get("proxy")
    if isinstance(proxy, dict):
        facts += [(f"proxy {key}", value) for key, value in proxy.items()]
    print_table(("fact", "value"), facts)
    for name in sorted(tables):
        rows = status.get(name)
        if isinstance(rows, list) and rows:
            print(f"\n{name}")
            shown = [{key: value for key, value in row.items() if key != LAST_WORDS} for row in rows]
            print_table(tuple(shown[0]), [tuple(row.values()) for row in shown])
    _print_last_words(status.get("models"))


def _print_last_words(models: object) -> None:
    """The end of the log of each model server that is in trouble."""
    for model in models if isinstance(models, list) else ():
        if lines := model.get(LAST_WORDS):
            print(f"\nlast words of {model['name']}", *(f"  {line}" for line in lines), sep="\n")
