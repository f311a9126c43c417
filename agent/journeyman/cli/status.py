"""`journeyman status`: this host, as its own agent sees it."""

from __future__ import annotations

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import local_flags
from journeyman.control import call
from journeyman.core.quantities import bytes_text
from journeyman.settings import Loaded

LAST_WORDS = "lastWords"
# What people look for of a model server; `--json` has the rest.
OF_MODELS = ("name", "phase", "reason", "service", "runtime", "contextTokens", "memory", "tokensPerSecond")


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
            columns = OF_MODELS if name == "models" else tuple(rows[0])
            print_table(columns, [tuple(_told(row[column]) for column in columns) for row in rows])
    _print_last_words(status.get("models"))


def _told(value: object) -> object:
    """What fits into a cell; of the memory of a server that is what it took, or else what it will take."""
    if isinstance(value, dict):
        known = value.get("allocatedBytes") or value.get("estimatedBytes")
        return None if known is None else bytes_text(known)
    return value


def _print_last_words(models: object) -> None:
    """The end of the log of each model server that is in trouble."""
    for model in models if isinstance(models, list) else ():
        if lines := model.get(LAST_WORDS):
            print(f"\nlast words of {model['name']}", *(f"  {line}" for line in lines), sep="\n")
