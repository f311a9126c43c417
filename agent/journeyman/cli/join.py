"""`journeyman join`: makes this machine a node of a control plane."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from journeyman.cli.durations import DURATION
from journeyman.cli.output import print_json
from journeyman.errors import UsageError
from journeyman.joining import Joined, JoinRequest, join
from journeyman.settings import load_settings

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    epilog="Example: journeyman join https://desk.local:6480 --token-file join.token --ca-hash sha256:4f1a..."
)
@click.argument("server", metavar="[URL]", default="")
@click.option("--token-file", type=FILE, help="Join token, or token of a ServiceAccount.")
@click.option("--csr", "by_certificate", is_flag=True, help="Ask for a client certificate with that token.")
@click.option(
    "--wait", type=DURATION, default="10m", show_default=True, help="With --csr: how long for an approval."
)
@click.option("--kubeconfig", type=FILE, help="Kubeconfig in place of URL and token; its context is copied.")
@click.option("--context", help="Context of the kubeconfig; without it the current one.")
@click.option("--ca-hash", default="", help="SHA-256 of the CA certificate that the plane hands out.")
@click.option("--ca-file", type=FILE, help="PEM file of the server's CA, in place of --ca-hash.")
@click.option("--name", default="", help="Name of the FleetNode; without it one is made of the host name.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of the FleetNode.")
@click.option("--role", "roles", multiple=True, help="Role of the node, by custom worker or verifier.")
@click.option(
    "--namespace", "namespaces", multiple=True, help="Namespace of tasks; may be given several times."
)
@click.option("--allow-insecure-http", is_flag=True, default=None, help="Allow http to another machine.")
@click.option("--state-root", type=click.Path(path_type=Path), help="Folder of all durable state.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(*, as_json: bool, **given: Any) -> None:
    """Join the control plane at URL: get a credential of this node's own, and write the settings.

    The token is one from `journeyman plane join-token`, which is spent, or that of a ServiceAccount, which is
    copied, as is a kubeconfig. With --csr it only asks the cluster for a certificate, and is then forgotten:
    the key is made here and stays here, and this waits until an administrator has approved the request. Cut
    off or too late, the same command goes on with the same request.

    Exits with 76 if another agent beats under the name, with 77 if the credential is refused or the request
    is denied, with 78 if nobody vouches for the CA or a setting is in the way, with 79 if nobody has approved
    in time.
    """
    joined = join(request_of(given), lambda line: print(f"journeyman: {line}", file=sys.stderr))
    if as_json:
        print_json(vars(joined))
        return
    _tell(joined)


def request_of(given: dict[str, Any]) -> JoinRequest:
    """The request that the options of a command make."""
    if bool(given["server"] and given["token_file"]) == bool(given.get("kubeconfig")):
        raise UsageError(
            "a join needs URL and --token-file, or --kubeconfig", "See `journeyman join --help`."
        )
    if given.get("by_certificate") and not given["token_file"]:
        raise UsageError("--csr needs a --token-file that may ask for a certificate")
    names = ("state_root", "allow_insecure_http", "kubeconfig", "context")
    flags = {name: given.get(name) for name in names}
    loaded = load_settings(flags, os.environ, default_root=given.get("default_root"))
    labels = dict(pair.partition("=")[::2] for pair in given.get("labels", ()))
    if not all("=" in pair for pair in given.get("labels", ())):
        raise UsageError("a --label is no KEY=VALUE pair", "Write it like --label zone=attic")
    return JoinRequest(
        settings=loaded.settings,
        server=given["server"],
        token_file=given["token_file"],
        ca_file=given["ca_file"],
        ca_hash=given["ca_hash"],
        name=given["name"],
        labels=labels,
        roles=given.get("roles", ()),
        namespaces=tuple(dict.fromkeys(given.get("namespaces", ()))),
        by_certificate=bool(given.get("by_certificate")),
        wait_seconds=given.get("wait") or 0.0,
        trust=_asked,
    )


def _asked(ca_hash: str) -> bool:
    """Whether the person at the terminal has compared the hash; nobody there is a no."""
    if not sys.stdin.isatty():
        return False
    print(f"The CA of the plane has the hash {ca_hash}", file=sys.stderr)
    return click.confirm("Is that what `journeyman plane join-token` shows there?", err=True)


def _tell(joined: Joined) -> None:
    print(f"Joined {joined.server} as {joined.name}.")
    if joined.ca_hash:
        print(f"CA:    {joined.ca_hash}")
    for path in joined.files:
        print(f"wrote  {path}")
    print("Next:  journeyman run, or journeyman install to have it run for good")
