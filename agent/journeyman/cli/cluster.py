"""`journeyman cluster`: what an admin prepares on a Kubernetes cluster."""

from __future__ import annotations

import re

import click

from journeyman.cli.output import print_json
from journeyman.core.cluster_manifests import manifests
from journeyman.core.node_name import checked_name
from journeyman.errors import UsageError

SERVICE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)


@click.group(epilog="Example: journeyman cluster manifests desk attic | kubectl apply -f -")
def command() -> None:
    """Prepare a Kubernetes cluster for nodes."""


@command.command("manifests", epilog="Example: journeyman cluster manifests desk attic | kubectl apply -f -")
@click.argument("nodes", nargs=-1, required=True)
@click.option(
    "--credential",
    type=click.Choice(["token", "certificate"]),
    default="token",
    show_default=True,
    help="How the nodes speak: by the token of a ServiceAccount, or by a certificate of `join --csr`.",
)
@click.option("--account-namespace", default="foreman-system", show_default=True, help="Of ServiceAccounts.")
@click.option(
    "--namespace", "task_namespaces", multiple=True, default=("default",), show_default=True, help="Of tasks."
)
@click.option(
    "--service-namespace",
    "service_namespaces",
    multiple=True,
    help="Of InferenceServices that the nodes serve, see docs/inference.md; without any, they serve none.",
)
@click.option(
    "--register",
    "registered",
    multiple=True,
    metavar="NAMESPACE/NAME",
    help="InferenceService that the nodes may make reachable; see docs/proxy.md.",
)
@click.option(
    "--create-namespace",
    "create_namespaces",
    is_flag=True,
    help="Print the namespaces, too: where LLMKube is not installed yet.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a List in JSON.")
def print_manifests(
    *,
    nodes: tuple[str, ...],
    credential: str,
    account_namespace: str,
    task_namespaces: tuple[str, ...],
    service_namespaces: tuple[str, ...],
    registered: tuple[str, ...],
    create_namespaces: bool,
    as_json: bool,
) -> None:
    """Print one ServiceAccount for each of NODES, its RBAC, and the admission policy for all, as YAML.

    Each account may speak for the FleetNode of its name, work on the tasks assigned to that, serve what is
    placed on it, and renew its own token. The first one is made by `kubectl create token journeyman-NAME
    --namespace foreman-system`. With --register it may also write the Service and the EndpointSlice of that
    name, and no other ones. The policy needs Kubernetes 1.30.

    With `--credential certificate` the rights are those of the user `journeyman:node:NAME`, and the one
    ServiceAccount `node-bootstrapper` may do nothing but ask for certificates: its token is what
    `journeyman join --csr` wants.
    """
    made = manifests(
        [checked_name(node) for node in nodes],
        account_namespace=account_namespace,
        task_namespaces=task_namespaces,
        service_namespaces=service_namespaces,
        registered=[_service(each) for each in registered],
        certificates=credential == "certificate",
        create_namespaces=create_namespaces,
    )
    if as_json:
        print_json({"apiVersion": "v1", "kind": "List", "items": made})
        return
    import yaml

    print(yaml.safe_dump_all(made, sort_keys=False, width=110), end="")


def _service(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (SERVICE.fullmatch(name) and SERVICE.fullmatch(namespace) and slash):
        raise UsageError(f"{text} is no service", "Name it like default/coder.")
    return namespace, name
