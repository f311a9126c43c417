"""`journeyman plane`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from journeyman import __version__
from journeyman.cli.output import print_json
from journeyman.cli.plane_nodes import join_token, revoke_node
from journeyman.errors import HostError, UsageError

DEFAULT_LISTEN = "127.0.0.1:6480"


@click.group(
    invoke_without_command=True,
    epilog="Example: journeyman plane --listen 0.0.0.0:6480 --tls --tls-name desk.local",
)
@click.pass_context
@click.option("--data-dir", type=click.Path(path_type=Path), help="Database, token and certificates.")
@click.option(
    "--listen", default=DEFAULT_LISTEN, show_default=True, help="HOST:PORT; port 0 takes a free one."
)
@click.option("--tls", is_flag=True, help="Serve https with a certificate of an own CA.")
@click.option("--tls-name", "tls_names", multiple=True, help="A further name or address for the certificate.")
@click.option("--stop-with-stdin", is_flag=True, help="Stop when standard input ends.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    context: click.Context,
    *,
    data_dir: Path | None,
    listen: str,
    tls: bool,
    tls_names: tuple[str, ...],
    stop_with_stdin: bool,
    as_json: bool,
) -> None:
    """Run the embedded control plane until it is told to stop; or say who may be a node of it.

    It answers kubectl and the Python client with the token of its data folder, and each agent with a
    credential of its own, which `journeyman join` gets.
    """
    if context.invoked_subcommand is not None:
        return
    try:
        from journeyman_plane.run import Plane, PlaneSettings, serve
    except ModuleNotFoundError as error:
        raise HostError(
            f"the control plane is not installed ({error.name} is missing)",
            "Run: pip install 'journeyman[plane]'",
        ) from error
    host, port = _address(listen)
    settings = PlaneSettings(
        data_dir=data_dir or _default_data_dir(),
        host=host,
        port=port,
        tls=tls,
        tls_names=tls_names,
    )
    plane = Plane(settings, version=__version__)
    facts = {
        "url": plane.url,
        "dataDir": str(settings.data_dir),
        "kubeconfig": str(settings.kubeconfig),
        "tokenFile": str(settings.token_file),
        "pid": os.getpid(),
    } | ({"caFile": str(settings.ca_file)} if tls else {})
    serve(plane, lambda: _tell(facts, as_json=as_json), stop_with_stdin=stop_with_stdin)


command.add_command(join_token)
command.add_command(revoke_node)


def _tell(facts: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        print(f"Listening on {facts['url']}")
        print(f"kubeconfig:  {facts['kubeconfig']}")
        print(f"token file:  {facts['tokenFile']}")
        print(f"Try:         kubectl --kubeconfig '{facts['kubeconfig']}' get fleetnodes")
    # Whoever started the plane through a pipe waits for these lines.
    sys.stdout.flush()


def _default_data_dir() -> Path:
    from journeyman.settings import default_state_root

    named = os.environ.get("JOURNEYMAN_STATE_ROOT")
    root = default_state_root(os.environ, platform=sys.platform, uid=os.getuid(), home=Path.home())
    return (Path(named) if named else root) / "plane"


def _address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; an IPv6 address may be in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004
        raise UsageError(
            f"--listen {text}: this is no HOST:PORT",
            f"Write it like {DEFAULT_LISTEN}; port 0 takes a free one.",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
