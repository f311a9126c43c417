"""`journeyman update bootstrap`: the first release of a host that has none."""

from __future__ import annotations

import json
from pathlib import Path

import click

from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import flags_for
from journeyman.errors import ConfigError, HostError, JourneymanError
from journeyman.settings import Loaded
from journeyman_updater.bootstrap import Installed, UpdaterError, bootstrap

# What the agent has to know of this host, kept in config.toml.
KEPT = ("server", "token_file", "ca_file", "node_name", "models")


@click.command(
    "bootstrap",
    epilog="Example: journeyman update bootstrap journeyman-0.2.0-linux-amd64.tar.gz --key release.pub "
    "--server https://192.0.2.10:6480 --token-file node.token --ca-file ca.crt",
)
@click.argument("artifact", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--key",
    "key_files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Public key that may sign releases; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@flags_for(("state_root", *KEPT))
def command(*, loaded: Loaded, artifact: Path, key_files: tuple[Path, ...], as_json: bool) -> None:
    """Install ARTIFACT, a release with its .minisig beside it, in a state root that has none.

    After it `sh STATE_ROOT/run-guard` keeps agent and updater running, with nothing else of Journeyman on
    this host.  A config.toml that is there is kept; else the given settings are written to it.
    """
    try:
        keys = tuple(path.read_text() for path in key_files)
        installed = bootstrap(loaded.settings.root, artifact, keys=keys, source="agentrelease")
        _write_config(loaded)
    except UpdaterError as error:
        raise JourneymanError(f"{error.reason}: {error.message}", error.advice) from error
    except OSError as error:
        raise HostError(f"{loaded.settings.state_root} cannot be used: {error}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    _tell(installed, as_json=as_json)


def _write_config(loaded: Loaded) -> None:
    path = loaded.settings.root.config_file
    if path.exists():
        return
    values = {"updates_source": "agentrelease"}
    values |= {name: value for name in KEPT if (value := getattr(loaded.settings, name))}
    # Texts and lists of texts are written alike in JSON and TOML.
    lines = [
        f"{name} = {json.dumps(value, default=str, ensure_ascii=False)}" for name, value in values.items()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _tell(installed: Installed, *, as_json: bool) -> None:
    facts = {
        "version": installed.slot.version.spelled,
        "sha256": installed.slot.sha256,
        "runGuard": str(installed.parent),
        "guard": str(installed.guard),
        "updateOnce": str(installed.updater),
    }
    if as_json:
        print_json(facts)
    else:
        print(f"Installed {facts['version']}.")
        print(f"Next: sh '{installed.parent}', at each boot; it keeps agent and updater running")
