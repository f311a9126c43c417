"""`journeyman task`: submit work and see what becomes of it."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import Any

import click

from journeyman.cli.output import print_json, print_table
from journeyman.cli.setting_flags import client_flags
from journeyman.client import (
    Submission,
    age,
    changes,
    control_plane,
    submit,
    tasks_of,
    until_terminal,
)
from journeyman.errors import UsageError
from journeyman.model.agentic_task import AgenticTask
from journeyman.settings import Loaded, Settings

NOT_ON_TARGET = 1
COLUMNS = ("name", "kind", "phase", "node", "verdict", "age")


@click.group(epilog="Example: journeyman task submit --wait 'Name three primary colours.'")
def command() -> None:
    """Submit tasks and watch them."""


@command.command("submit", epilog="Example: journeyman task submit --wait 'Name three primary colours.'")
@click.argument("prompt")
@click.option("--name", default="", help="Name of the task; one is made up without it.")
@click.option("--agent", "persona", default="", help="The Agent (persona) that it runs as.")
@click.option("--timeout-seconds", default=0, type=click.IntRange(min=0), help="0 is no limit.")
@click.option("--depends-on", multiple=True, help="A task that must be on target first.")
@click.option("--node-selector", multiple=True, metavar="KEY=VALUE", help="A label that the node has.")
@click.option("--wait", is_flag=True, help="Wait for the verdict, and exit with 1 if it is not GO.")
@click.option("--json", "as_json", is_flag=True, help="Print the task object.")
@client_flags
def submit_command(
    *, loaded: Loaded, prompt: str, node_selector: tuple[str, ...], wait: bool, as_json: bool, **given: Any
) -> None:
    """Submit PROMPT as a freeform task; `-` reads it from standard input.

    Exits with 1 if --wait saw a verdict that is not GO, with 69 if the control plane does not answer.
    """
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise UsageError("the prompt is empty", "say what the model shall answer")
    submission = Submission(text, node_selector=_labels(node_selector), **given)
    task = asyncio.run(_submit(loaded.settings, submission, wait=wait, quiet=as_json))
    if as_json:
        print_json(task)
    elif wait:
        print(answer_of(task))
    else:
        print(f"task {task['metadata']['name']} submitted")
    if wait and not AgenticTask.from_wire(task).on_target:
        sys.exit(NOT_ON_TARGET)


@command.command("list", epilog="Example: journeyman task list --json")
@click.option("--json", "as_json", is_flag=True, help="Print the task objects.")
@client_flags
def list_command(*, loaded: Loaded, as_json: bool) -> None:
    """List the tasks of the namespace."""
    items = asyncio.run(_list(loaded.settings))
    if as_json:
        print_json(items)
    else:
        print_table(COLUMNS, [_row(item) for item in items])


@command.command("get", epilog="Example: journeyman task get task-1a2b3c4d --json")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the task object.")
@client_flags
def get_command(*, loaded: Loaded, name: str, as_json: bool) -> None:
    """Show one task and its answer.  Exits with 66 if there is none of that name."""
    item = asyncio.run(_get(loaded.settings, name))
    if as_json:
        print_json(item)
        return
    print_table(COLUMNS, [_row(item)])
    if answer := answer_of(item):
        print(f"\n{answer}")


@command.command("watch", epilog="Example: journeyman task watch task-1a2b3c4d")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@client_flags
def watch_command(*, loaded: Loaded, name: str | None, as_json: bool) -> None:
    """Print each change of the tasks, or of task NAME until it has ended."""
    asyncio.run(_watch(loaded.settings, name, as_json=as_json))


def answer_of(task: dict[str, Any]) -> str:
    """What the model said, or why it said nothing."""
    result = task.get("status", {}).get("result", {})
    extra = result.get("extra", {})
    return str(extra.get("modelExtra", {}).get("answer") or result.get("summary") or "")


async def _submit(settings: Settings, submission: Submission, *, wait: bool, quiet: bool) -> dict[str, Any]:
    async with control_plane(settings) as plane:
        created = await submit(plane, submission, settings.namespace)
        name = created["metadata"]["name"]
        if not wait:
            return created
        async for task in until_terminal(plane, settings.namespace, name):
            if not quiet:
                node = f" on {task.status.assigned_node}" if task.status.assigned_node else ""
                print(f"{name}: {task.status.phase or 'Pending'}{node}", file=sys.stderr)
        return await plane.get(tasks_of(settings.namespace).named(name))


async def _list(settings: Settings) -> list[dict[str, Any]]:
    async with control_plane(settings) as plane:
        return (await plane.list(tasks_of(settings.namespace))).items


async def _get(settings: Settings, name: str) -> dict[str, Any]:
    async with control_plane(settings) as plane:
        return await plane.get(tasks_of(settings.namespace).named(name))


async def _watch(settings: Settings, name: str | None, *, as_json: bool) -> None:
    async with control_plane(settings) as plane:
        if name is not None:
            await plane.get(tasks_of(settings.namespace).named(name))
        async for kind, item in changes(plane, tasks_of(settings.namespace)):
            if name not in {None, item["metadata"]["name"]}:
                continue
            row = json.dumps({"type": kind, "object": item}) if as_json else "  ".join(_row(item))
            print(row, flush=True)
            if name is not None and (kind == "DELETED" or AgenticTask.from_wire(item).is_terminal):
                return


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    task = AgenticTask.from_wire(item)
    status = task.status
    return (
        task.metadata.name,
        task.spec.kind.value,
        status.phase.value if status.phase else "Pending",
        status.assigned_node or "-",
        status.verdict.value if status.verdict else "-",
        age(task.metadata.creation_timestamp, datetime.now(UTC)),
    )


def _labels(pairs: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    if not all("=" in pair for pair in pairs):
        raise UsageError("--node-selector takes KEY=VALUE", "for example --node-selector disk=ssd")
    return tuple((key, value) for key, _, value in (pair.partition("=") for pair in pairs))
