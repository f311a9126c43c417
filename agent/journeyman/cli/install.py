"""`journeyman install`: the agent as a service of this host."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from journeyman.cli.join import request_of
from journeyman.cli.output import print_json
from journeyman.errors import HostError, UsageError
from journeyman.installation import Report, Request, install, plan
from journeyman.joining import join
from journeyman.settings import SYSTEM_ROOT, Loaded, load_settings
from journeyman_updater.installation import (
    Choice,
    Target,
    choose,
    managers_here,
    next_step,
    user_of_agent,
)

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
SERVICES = (
    *("auto", "systemd", "systemd-user", "launchd", "launchd-gui", "launchd-user", "runit"),
    *("termux", "none"),
)
WORDS = {
    "boot": "starts at boot",
    "login": "starts at login, and ends at logout",
    "runsvdir": "starts with runsvdir",
    "termux": "starts with Termux's services, or at boot by Termux:Boot",
    "never": "does not start by itself: nothing here would start it at boot",
}


@click.command(
    epilog="Example: sudo journeyman install --artifact journeyman-0.2.0-linux-amd64.tar.gz --key release.pub"
    " --server https://192.0.2.10:6480 --token-file node.token --ca-file ca.crt"
)
@click.option("--system/--user", "system", default=None, help="For the whole machine, or for you alone.")
@click.option("--service", type=click.Choice(SERVICES), default="auto", help="Who is to keep the agent.")
@click.option("--service-folder", default="", help="What runsvdir watches, or where property lists go.")
@click.option(
    "--run-as",
    default="",
    metavar="USER",
    help="Who runs the agent of a system install: journeyman, on Macs whoever calls sudo.",
)
@click.option("--artifact", type=FILE, help="The first release; without it what runs now is copied.")
@click.option("--key", "key_files", multiple=True, type=FILE, help="Public key that may sign releases.")
@click.option("--allow-unsigned", is_flag=True, help="Take a release without a signature, now and later.")
@click.option("--deadline", default=90.0, help="Seconds for READY, and again for the first heartbeat.")
@click.option("--dry-run", is_flag=True, help="Print every file and command, and touch nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--state-root", type=click.Path(path_type=Path), help="Folder of all durable state.")
@click.option("--join", "join_url", metavar="URL", help="Join this plane first, with a join token.")
@click.option("--ca-hash", default="", help="With --join: SHA-256 of the CA that the plane hands out.")
@click.option("--server", help="URL of the control plane's API.")
@click.option("--token-file", type=FILE, help="File with the bearer token; it is copied.")
@click.option("--ca-file", type=FILE, help="PEM file of the server's CA; it is copied.")
@click.option("--node-name", help="Name of the FleetNode.")
@click.option("--models", multiple=True, help="Model to serve; may be repeated.")
@click.option("--updates-source", help="agentrelease lets the plane's AgentReleases update this node.")
@click.option("--allow-insecure-http", is_flag=True, default=None, help="Allow http to another machine.")
def command(
    *, system: bool | None, service: str, service_folder: str, dry_run: bool, as_json: bool, **given: Any
) -> None:
    """Install the agent as a service, start it, and wait until the control plane shows it.

    Without --artifact the Journeyman that runs now is copied, so that no upgrade of it by pip, pipx or
    Homebrew disturbs the agent.

    A second run changes nothing but what differs, and says so.  A run that fails takes back what it made, but
    for a join: repeat it without --join.
    """
    choice = choose(managers_here(service_folder), service, system=system)
    if choice.problem:
        kind = UsageError if "contradict" in choice.problem else HostError
        raise kind(choice.problem, choice.advice)
    if not dry_run:
        _join_first(choice, given)
    request = _request(choice, service_folder, given)
    if dry_run:
        _tell_plan(request, as_json=as_json)
        return
    _tell(install(request, _say), as_json=as_json)


def _say(line: str) -> None:
    print(f"journeyman: {line}", file=sys.stderr)


def _join_first(choice: Choice, given: dict[str, Any]) -> None:
    """Joins where that is asked for; what the join has written is then what is installed."""
    url = given["join_url"]
    if url is None:
        return
    if given["token_file"] is None or given["server"] is not None:
        raise UsageError("--join needs --token-file and stands in place of --server")
    options = {"server": url, "name": given["node_name"] or ""}
    options |= {name: given[name] for name in ("token_file", "ca_file", "ca_hash", "state_root")}
    options |= {"allow_insecure_http": given["allow_insecure_http"]}
    options |= {"default_root": SYSTEM_ROOT if choice.is_system else None}
    join(request_of(options), _say)
    given |= dict.fromkeys(("token_file", "ca_file", "node_name", "updates_source", "allow_insecure_http"))


def _request(choice: Choice, service_folder: str, given: dict[str, Any]) -> Request:
    run_as, key_files = given.pop("run_as"), given.pop("key_files")
    artifact, unsigned = given.pop("artifact"), given.pop("allow_unsigned")
    deadline = given.pop("deadline")
    given = {name: value for name, value in given.items() if name not in {"join_url", "ca_hash"}}
    loaded: Loaded = load_settings(given, os.environ, default_root=SYSTEM_ROOT if choice.is_system else None)
    folder = service_folder or (managers_here().runit_folder if choice.service == "runit" else "")
    target = Target(
        loaded.settings.root,
        choice.service,
        _user_of_agent(run_as) if choice.is_system else "",
        str(Path(folder).absolute()) if folder else "",
    )
    keys = tuple(path.read_text() for path in key_files)
    return Request(loaded.settings, target, artifact, keys, unsigned, deadline)


def _user_of_agent(named: str) -> str:
    user = user_of_agent(sys.platform, named, os.environ.get("SUDO_USER", ""))
    if not user:
        raise UsageError(
            "it cannot be told who is to run the agent", "Name a user of this Mac with --run-as USER."
        )
    return user


def _tell_plan(request: Request, *, as_json: bool) -> None:
    files, commands = plan(request)
    step = next_step(request.target)
    if as_json:
        told = {"service": request.target.service, "files": files, "commands": commands, "next_step": step}
        print_json(told)
        return
    print(f"Would install in {request.target.root.path}, kept by {request.target.service}.")
    for title, lines in (("Files:", files), ("Commands:", commands)):
        print(title)
        for line in lines:
            print(f"  {line}")
    if step:
        print(f"Next, {step}")


def _tell(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(vars(report))
        return
    for line in report.changes or ["nothing to do: all is installed and runs"]:
        print(line)
    if not report.node:
        print(f"{report.version} is laid down and does not run yet.")
        print(f"Next, {report.next_step}")
        return
    print(f"{report.node} runs {report.version}, kept by {report.service}; it {WORDS[report.starts]}.")
    if (report.service, report.starts) == ("systemd-user", "login"):
        print("Next: loginctl enable-linger, and it starts at boot")
