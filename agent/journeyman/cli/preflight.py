"""`journeyman preflight`: whether a cluster is ready for this node."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from dataclasses import asdict

import click

from journeyman.cli.output import print_json
from journeyman.cli.setting_flags import CLIENT, flags_for
from journeyman.preflight import Findings, preflight
from journeyman.settings import Loaded, Settings

NOT_READY = 1
flags = flags_for((*CLIENT, "task_namespaces", "node_name", "node_labels"))


@click.command(epilog="Example: journeyman preflight --kubeconfig node.kubeconfig --node-name desk")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@flags
def command(*, loaded: Loaded, as_json: bool) -> None:
    """Ask for each permission that the agent needs, and which AgentReleases would select this node.

    For each release of others that would, print the patch that excludes nodes of Journeyman from it. Exits
    with 1 if a permission is missing or such a release is there.
    """
    found = asyncio.run(preflight(loaded.settings))
    if as_json:
        print_json(asdict(found))
    else:
        _tell(found, loaded.settings)
    sys.exit(NOT_READY if found.missing or found.releases else 0)


def _tell(found: Findings, settings: Settings) -> None:
    for line in found.allowed:
        print(f"ok       {line}")
    for line in found.missing:
        print(f"missing  {line}")
    if found.missing:
        places = [
            *([("--credential", "certificate")] if settings.certificate_file else []),
            *(("--namespace", each) for each in settings.namespaces_of_tasks),
            *(("--service-namespace", each) for each in settings.namespaces_of_services),
            *(("--register", each) for each in found.services),
        ]
        words = " ".join([found.node, *(f"{option} {each}" for option, each in places)])
        print(f"Have the admin run: journeyman cluster manifests {words} | kubectl apply -f -")
    for release in found.releases:
        print(f"selects  {release.name}, which would have this node run {release.version}. To exclude it:")
        patch = shlex.quote(json.dumps(release.patch))
        print(f"  kubectl patch agentrelease {release.name} --type merge -p {patch}")
