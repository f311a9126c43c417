"""`journeyman update verify`: whether this host would take a file, offline."""

from __future__ import annotations

from pathlib import Path

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import local_flags
from journeyman.cli.update_common import JSON, explain
from journeyman.errors import ConfigError, HostError
from journeyman.settings import Loaded
from journeyman_updater.verify import UpdaterError, Verified, verify


@click.command("verify", epilog="Example: journeyman update verify journeyman-0.4.1-linux-amd64.tar.gz")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--key",
    "key_files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Public key to trust in place of those that are pinned here; may be repeated.",
)
@JSON
@local_flags
def command(*, loaded: Loaded, file: Path, key_files: tuple[Path, ...], as_json: bool) -> None:
    """Verify the release in FILE, whose signature lies beside it as FILE.minisig; needs no network.

    Checks what an update checks before it asks the release itself: signature, promise, archive, platform and
    Python.  Nothing of it is run.  Exits with 1 if this host would refuse it, and says the reason code.
    """
    try:
        keys = tuple(path.read_text() for path in key_files)
        found = verify(file, root=loaded.settings.root, keys=keys)
    except UpdaterError as error:
        if as_json:
            print_json({"ok": False, "reason": error.reason, "message": error.message})
        raise explain(error) from error
    except OSError as error:
        raise HostError(f"{file} cannot be verified: {error}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    facts = _facts(found)
    if as_json:
        print_json({"ok": True, **facts})
    else:
        print_table(("promise", "value"), list(facts.items()))
        print("This host would take it.")


def _facts(found: Verified) -> dict[str, object]:
    promise, manifest = found.promise, found.manifest
    return {
        "product": promise.product,
        "version": promise.version.spelled,
        "os": promise.os,
        "arch": promise.arch,
        "python": f"{manifest.python_min}-{manifest.python_max}",
        "sequence": promise.sequence,
        "sizeBytes": promise.size,
        "sha256": promise.sha256,
        "expires": f"{promise.expires:%Y-%m-%dT%H:%M:%SZ}",
        "files": len(manifest.files),
    }
