"""`journeyman models`: what lies in the model store, how it comes there, and how it goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import flags_for
from journeyman.core.quantities import bytes_text
from journeyman.errors import ModelError
from journeyman.models import Models
from journeyman.settings import Loaded

_flags = flags_for(("state_root", "model_hub_url", "model_hub_token_file", "model_plain_http_hosts"))
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_name = click.option("--name", help="What to call it; by default as its file.")


@click.group(
    epilog="Example: journeyman models pull hf://ggml-org/SmolLM3-3B-GGUF/SmolLM3-Q4_K_M.gguf --name smollm3"
)
def command() -> None:
    """Fetch, list, verify and delete models."""


@command.command(
    "pull",
    epilog="Example: journeyman models pull https://models.example/llama-3b-q4.gguf --sha256 9f86d08188...",
)
@click.argument("source")
@_name
@click.option(
    "--sha256",
    "digests",
    multiple=True,
    help="Digest that the file must have; once for each part of a split.",
)
@_as_json
@_flags
def pull(*, loaded: Loaded, source: str, name: str | None, digests: tuple[str, ...], as_json: bool) -> None:
    """Fetch a model from a web server or a hub.

    SOURCE is https://..., hf://OWNER/REPO[@REVISION]/FILE.gguf, file:///..., or a built-in name;
    hf://OWNER/REPO[@REVISION]/ with a slash at its end is a whole model for MLX.

    Goes on where an earlier fetch stopped, however that ended.  Of a model that was split any part may be
    named: all come.  A model hub tells the digests itself.
    """
    models = Models(loaded.settings, os.environ)
    _show(models.pull(source, _teller(), name=name, digests=digests), as_json=as_json)


@command.command(
    "import", epilog="Example: journeyman models import ~/Downloads/llama-3b-q4.gguf --name llama"
)
@click.argument("path", type=click.Path(path_type=Path, resolve_path=True))
@_name
@click.option("--in-place", is_flag=True, help="Use it where it lies, in place of a copy.")
@_as_json
@_flags
def import_(*, loaded: Loaded, path: Path, name: str | None, in_place: bool, as_json: bool) -> None:
    """Take a GGUF file, or the folder of a model for MLX, of this host into the store."""
    if in_place and name is not None:
        raise click.UsageError("a file that stays where it lies is called as it is; leave --name out")
    models = Models(loaded.settings, os.environ)
    _show(models.take(path, _teller(), name=name, in_place=in_place), as_json=as_json)


@command.command("list", epilog="Example: journeyman models list --json")
@_as_json
@_flags
def list_(*, loaded: Loaded, as_json: bool) -> None:
    """List the models that are here, and what their files say of them."""
    found = Models(loaded.settings, os.environ).listing()
    if as_json:
        print_json(found)
        return
    print_table(("name", "size", "quantisation", "layers", "context", "tools", "used by", "source"), [
        _row(model) for model in found
    ])  # fmt: skip


@command.command("verify", epilog="Example: journeyman models verify llama-3b-q4 --json")
@click.argument("wanted", nargs=-1, metavar="[NAME|PATH]...")
@_as_json
@_flags
def verify(*, loaded: Loaded, wanted: tuple[str, ...], as_json: bool) -> None:
    """Read models as a whole and compare their digests.

    Without a name all of them.  A path needs not be in the store.  Exits with 74 if one is not whole.
    """
    found = Models(loaded.settings, os.environ).verify(wanted)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_table(("name", "verdict", "why"), [
            (one.name, one.fault or "whole", one.message) for one in found
        ])  # fmt: skip
    wrong = [one for one in found if one.fault]
    if wrong:
        raise ModelError(f"{len(wrong)} of {len(found)} models are not as they have to be", wrong[0].advice)


@command.command("gc", epilog="Example: journeyman models gc llama-3b-q4 --dry-run")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--parts", is_flag=True, help="Delete also what came of fetches that broke off.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@_as_json
@_flags
def gc(*, loaded: Loaded, names: tuple[str, ...], parts: bool, dry_run: bool, as_json: bool) -> None:
    """Forget models by name, and delete whatever no name means any more.

    Never takes what a server has loaded, what the settings name, or what is being fetched.
    """
    waste = Models(loaded.settings, os.environ).collect(names, parts=parts, dry_run=dry_run)
    if as_json:
        freed = {"freedBytes": waste.freed_bytes, "removed": waste.removed, "kept": waste.kept}
        print_json({**freed, "dryRun": dry_run})
        return
    for removed in waste.removed:
        print(f"{'would delete' if dry_run else 'deleted'} {removed}")
    for kept in waste.kept:
        print(f"kept {kept}")
    print(f"{'would free' if dry_run else 'freed'} {bytes_text(waste.freed_bytes)}")


def _row(model: dict[str, Any]) -> tuple[object, ...]:
    facts = model["facts"] or {}
    return (
        model["name"], bytes_text(model["sizeBytes"]), facts.get("quantisation"), facts.get("layers"),
        model["contextTokens"], facts.get("supportsTools"), model["usedBy"], model["source"],
    )  # fmt: skip


def _show(model: dict[str, Any], *, as_json: bool) -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if as_json:
        print_json(model)
        return
    print(f"{model['name']}: {bytes_text(model['sizeBytes'])}, sha256 {model['sha256']}")
    if model["form"] == "safetensors":
        print(f'serve it with:\n[[inference]]\nmodel = "{model["name"]}"\nruntime = "mlx"')
    else:
        print(f'serve it with: models = ["{model["name"]}"]')


def _teller() -> Callable[[str], None]:
    """Shows progress on stderr: one line that changes on a terminal, else a line each."""
    if sys.stderr.isatty():
        return lambda line: print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    return lambda line: print(line, file=sys.stderr, flush=True)
