"""`journeyman up`: the whole thing on one machine."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import flags_for
from journeyman.cli.task import answer_of
from journeyman.client import ASSISTANT, Submission, control_plane, submit, tasks_of, until_terminal
from journeyman.errors import UsageError
from journeyman.model.agentic_task import AgenticTask
from journeyman.settings import Loaded, Settings
from journeyman.up import FleetOfOne, UpOptions, fleet_of_one, prepare_models

NOT_ON_TARGET = 1
INTERRUPTED = 130
HANDED_ON = ("namespace", "node_name")
Result = TypeVar("Result")


@click.command(epilog="Example: journeyman up --once 'Name three primary colours.'")
@click.option("--once", "prompt", metavar="PROMPT", help="Submit PROMPT, print the answer, stop.")
@click.option(
    "--model", type=click.Path(path_type=Path), help="Serve this GGUF file instead of the small one."
)
@click.option(
    "--listen",
    default="127.0.0.1:6480",
    show_default=True,
    help="HOST:PORT of the control plane; port 0 takes a free one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@flags_for(("state_root", *HANDED_ON), at_home=True)
def command(*, loaded: Loaded, prompt: str | None, model: Path | None, listen: str, as_json: bool) -> None:
    """Run a control plane, an agent and a model on this machine, until Ctrl-C stops them all.

    With --once exits with 0 if the verdict is GO and with 1 if it is not.
    """
    if prompt is not None and not prompt.strip():
        raise UsageError("the prompt is empty", "say what the model shall answer")
    started = time.monotonic()
    settings = loaded.settings
    models = prepare_models(settings, model, _tell_progress)
    options = UpOptions(listen=listen, models=models, flags=_flags_of_agent(loaded), tell=_tell)
    _tell("model file", time.monotonic() - started)
    if prompt is None:
        asyncio.run(_until_stopped(_serve(settings, options, as_json=as_json)))
        return
    answered = asyncio.run(_until_stopped(_answer(settings, options, prompt)))
    if answered is None:
        sys.exit(INTERRUPTED)
    task, seconds = answered
    _print_answer(task, seconds, as_json=as_json)
    sys.exit(0 if AgenticTask.from_wire(task).on_target else NOT_ON_TARGET)


def _flags_of_agent(loaded: Loaded) -> tuple[str, ...]:
    """What the agent would not find by itself, as it has our environment but not our command line."""
    flags: list[str] = []
    if loaded.config_file.exists():
        flags += ["--config", str(loaded.config_file.absolute())]
    for name in HANDED_ON:
        if loaded.origins[name].kind == "flag":
            flags += [f"--{name.replace('_', '-')}", str(getattr(loaded.settings, name))]
    return tuple(flags)


async def _until_stopped(work: Coroutine[Any, Any, Result]) -> Result | None:
    """The result of the work, or None if Ctrl-C or SIGTERM came first: it is then ended in good order."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if working.done():
        return working.result()
    print("stopping", file=sys.stderr)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return None


async def _serve(settings: Settings, options: UpOptions, *, as_json: bool) -> None:
    async with fleet_of_one(settings, options) as fleet:
        facts = await _facts(fleet)
        if as_json:
            print_json(facts)
        else:
            _print_facts(facts)
        sys.stdout.flush()
        await fleet.keep()


async def _answer(
    settings: Settings, options: UpOptions, prompt: str
) -> tuple[dict[str, Any], dict[str, float]]:
    async with fleet_of_one(settings, options) as fleet:
        started = time.monotonic()
        async with control_plane(fleet.settings) as plane:
            submission = Submission(prompt, persona=ASSISTANT)
            created = await submit(plane, submission, settings.namespace)
            name = created["metadata"]["name"]
            async for task in until_terminal(plane, settings.namespace, name):
                _tell(f"task {task.status.phase or 'Pending'}", time.monotonic() - started)
            ended = await plane.get(tasks_of(settings.namespace).named(name))
        seconds = {**fleet.seconds, "task": round(time.monotonic() - started, 3)}
        stopping = time.monotonic()
    seconds["stop"] = round(time.monotonic() - stopping, 3)
    return ended, seconds


async def _facts(fleet: FleetOfOne) -> dict[str, Any]:
    status = await fleet.status()
    return {
        "server": fleet.plane_files.address_file.read_text().strip(),
        "kubeconfig": str(fleet.plane_files.kubeconfig),
        "stateRoot": str(fleet.settings.state_root),
        "nodeName": status["nodeName"],
        "models": status["models"],
        "proxy": status["proxy"],
        "seconds": fleet.seconds,
    }


def _print_facts(facts: dict[str, Any]) -> None:
    print(f"control plane  {facts['server']}")
    print(f"node           {facts['nodeName']}")
    for model in facts["models"]:
        print(f"model          {model['name']}")
    endpoint, key_file = facts["proxy"].get("baseUrl"), facts["proxy"].get("keyFile")
    if endpoint:
        print(f"OpenAI API     {endpoint}  (key in {key_file})")
    print(f"state          {facts['stateRoot']}")
    print()
    print("In another terminal:")
    print("  journeyman task submit --wait --agent assistant 'Name three primary colours.'")
    print(f"  kubectl --kubeconfig '{facts['kubeconfig']}' get fleetnodes")
    if endpoint:
        print(f"  curl -H \"Authorization: Bearer $(cat '{key_file}')\" {endpoint}/models")
    print("Ctrl-C stops everything.")


def _print_answer(task: dict[str, Any], seconds: dict[str, float], *, as_json: bool) -> None:
    if as_json:
        print_json({"answer": answer_of(task), "task": task, "seconds": seconds})
        return
    print(f"{answer_of(task)}\n")
    print_json(task)
    print("\n" + "  ".join(f"{name}: {took:.2f} s" for name, took in seconds.items()))


def _tell(step: str, seconds: float) -> None:
    print(f"[{seconds:6.2f} s] {step}", file=sys.stderr, flush=True)


def _tell_progress(line: str) -> None:
    print(f"[        ] {line}", file=sys.stderr, flush=True)
