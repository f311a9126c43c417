"""`journeyman proxy`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

from journeyman.cli.output import print_json
from journeyman.errors import ConfigError


@click.command(epilog="Example: journeyman proxy --routes routes.json --key-file proxy.key --port 8080")
@click.option(
    "--routes",
    required=True,
    type=click.Path(path_type=Path),
    help="JSON file that says which model answers where; read again when it is replaced.",
)
@click.option(
    "--key-file", required=True, type=click.Path(path_type=Path), help="File with the key of its clients."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=6481,
    show_default=True,
    help="On 127.0.0.1; 0 takes a free one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(*, routes: Path, key_file: Path, port: int, as_json: bool) -> None:
    """Run the OpenAI-compatible endpoint by itself, until Ctrl-C.

    An agent that serves models runs one already: `journeyman status` says where.  Here the routes are
    yours; see docs/proxy.md.  Exits with 78 if a file cannot be used and with 70 if the port is taken.
    """
    from journeyman.core.proxy.config import Keys, ProxyConfig
    from journeyman.core.proxy.routes import routes_from_json
    from journeyman.proxy.life import serve

    try:
        key = key_file.read_bytes().strip()
        routes_from_json(routes.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{error.filename} cannot be read: {error.strerror}", "Name another file."
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{routes} holds no routes: {error}", "docs/proxy.md shows how they look."
        ) from error
    if not key:
        raise ConfigError(f"{key_file} is empty", "Put a key there: one long random word.")

    def tell(url: str) -> None:
        if as_json:
            print_json({"baseUrl": url, "keyFile": str(key_file), "pid": os.getpid()})
        else:
            print(f"Listening on {url}")
            print("Ctrl-C lets what runs finish; Ctrl-C again ends it.")
        sys.stdout.flush()

    config = ProxyConfig(port=port, any_port=False)
    asyncio.run(serve(config, Keys(key), routes, tell))
