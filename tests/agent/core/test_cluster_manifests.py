"""What an admin applies binds each account to its own node."""

from __future__ import annotations

from typing import Any

import yaml
from click.testing import CliRunner

from journeyman.cli import root as cli
from journeyman.core.cluster_manifests import manifests
from journeyman.core.node_permissions import ALL, FOR_SERVICES
from journeyman.errors import UsageError

MADE = manifests(
    ["desk", "attic"],
    account_namespace="fleet",
    task_namespaces=["default", "work"],
    service_namespaces=["models"],
)


def of_kind(kind: str, name: str = "") -> list[dict[str, Any]]:
    return [each for each in MADE if each["kind"] == kind and name in ("", each["metadata"]["name"])]


def granted_to(made: list[dict[str, Any]], *subjects: dict[str, str]) -> set[tuple[Any, ...]]:
    """What RBAC gives these subjects: group, path, verb, names, and the namespace; empty for all."""
    found = []
    for binding in made:
        if not any(subject in binding.get("subjects", ()) for subject in subjects):
            continue
        (role,) = (
            each
            for each in made
            if (each["kind"], each["metadata"]["name"])
            == (binding["roleRef"]["kind"], binding["roleRef"]["name"])
        )
        found += [(rule, binding["metadata"].get("namespace", "")) for rule in role["rules"]]
    return {
        (rule["apiGroups"][0], path, verb, tuple(rule.get("resourceNames", ())), namespace)
        for rule, namespace in found
        for path in rule["resources"]
        for verb in rule["verbs"]
    }


def wanted_by_desk() -> set[tuple[Any, ...]]:
    wanted: set[tuple[Any, ...]] = {
        (each.resource.group, each.path, verb, ("desk",) if each.own else (), namespace)
        for each in ALL
        for verb in each.verbs
        for namespace in (("default", "work") if each.resource.namespaced else ("",))
    }
    return wanted | {
        (each.resource.group, each.path, verb, (), "models") for each in FOR_SERVICES for verb in each.verbs
    }


def test_an_account_may_do_what_an_agent_does_and_no_more() -> None:
    """All that the agent asks for is granted, to the own node by name where it has one, and nothing else."""
    account = {"kind": "ServiceAccount", "name": "journeyman-desk", "namespace": "fleet"}
    own_token = ("", "serviceaccounts/token", "create", ("journeyman-desk",), "fleet")
    assert granted_to(MADE, account) == wanted_by_desk() | {own_token}


def test_a_user_of_a_certificate_may_do_the_same_and_renew_it() -> None:
    """User and group together have what an agent asks for; the account for joins may ask and do no more."""
    made = manifests(
        ["desk", "attic"],
        account_namespace="fleet",
        task_namespaces=["default", "work"],
        service_namespaces=["models"],
        certificates=True,
    )
    requests = {
        ("certificates.k8s.io", "certificatesigningrequests", verb, (), "") for verb in ("create", "get")
    }
    rbac = "rbac.authorization.k8s.io"
    user = {"apiGroup": rbac, "kind": "User", "name": "journeyman:node:desk"}
    group = {"apiGroup": rbac, "kind": "Group", "name": "journeyman:nodes"}
    assert granted_to(made, user, group) == wanted_by_desk() | requests
    asker = {"kind": "ServiceAccount", "name": "node-bootstrapper", "namespace": "fleet"}
    assert granted_to(made, asker) == requests
    assert [each["metadata"]["name"] for each in made if each["kind"] == "ServiceAccount"] == [asker["name"]]


def test_namespaces_are_made_where_that_is_asked_for() -> None:
    """Each once, before what lies in it; the one that every cluster has is left out."""
    spaces = ["default", "work", "fleet"]
    made = manifests(["desk"], account_namespace="fleet", task_namespaces=spaces, create_namespaces=True)
    assert [(each["kind"], each["metadata"]["name"]) for each in made[:2]] == [
        ("Namespace", "fleet"),
        ("Namespace", "work"),
    ]
    assert all(each["kind"] != "Namespace" for each in [*MADE, *made[2:]])


def test_every_object_is_one_of_its_own() -> None:
    """No two objects have the same place, whatever nodes are called: applying all is applying each."""
    likely = ["nodes", "tasks", "any", "node-limits", "registrations"]
    nodes = [name for word in likely for name in (word, f"desk-{word}", f"desk.{word}")]
    made = manifests(
        ["desk", *nodes], account_namespace="fleet", task_namespaces=["fleet"], service_namespaces=["fleet"],
        registered=[("fleet", "chat")],
    )  # fmt: skip
    places = [
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in made
    ]
    assert [place for place in places if places.count(place) > 1] == []
    assert [each["metadata"]["name"] for each in of_kind("ServiceAccount")] == [
        "journeyman-desk",
        "journeyman-attic",
    ]


def test_the_policy_denies_what_rbac_cannot_pin() -> None:
    """It looks at every write of what nodes may write, and denies, also where it fails."""
    (policy,), (binding,) = of_kind("ValidatingAdmissionPolicy"), of_kind("ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy["spec"]["failurePolicy"] == "Fail"
    (condition,) = policy["spec"]["matchConditions"]
    for prefix in ("system:serviceaccount:fleet:journeyman-", "journeyman:node:"):
        assert f'username.startsWith("{prefix}")' in condition["expression"]
    watched = {
        path for rule in policy["spec"]["matchConstraints"]["resourceRules"] for path in rule["resources"]
    }
    kinds = ("fleetnodes", "agentictasks", "inferenceservices")
    registrations = {"services", "endpointslices", "endpoints"}
    assert watched == {*kinds, *(f"{kind}/status" for kind in kinds), *registrations}
    said = " ".join(each["message"] for each in policy["spec"]["validations"])
    for subject in (
        "own FleetNode alone",
        "status.updateRequest",
        "condition Ready",
        "not assigned",
        "not placed",
    ):
        assert subject in said


def test_the_command_prints_yaml_that_says_the_same() -> None:
    """`journeyman cluster manifests` prints these objects, a document each, and refuses a bad name."""
    words = ["cluster", "manifests", "desk", "attic", "--account-namespace", "fleet"]
    words += ["--namespace", "default", "--namespace", "work", "--service-namespace", "models"]
    done = CliRunner().invoke(cli, words)
    assert list(yaml.safe_load_all(done.output)) == MADE
    assert CliRunner().invoke(cli, ["cluster", "manifests", "No Name"]).exit_code != 0


def test_a_node_that_serves_nothing_of_the_fleet_reads_no_services() -> None:
    """Models name where weights lie, and no account reads that without need."""
    made = manifests(["desk"], account_namespace="fleet", task_namespaces=["default"])
    readable = {path for each in made for rule in each.get("rules", ()) for path in rule["resources"]}
    assert not readable & {"inferenceservices", "inferenceservices/status", "models"}


def test_registering_is_granted_under_these_names_alone() -> None:
    """RBAC names what is changed, and a policy of the node what is made; without names nothing is granted."""
    services = [("default", "coder.large"), ("work", "chat")]
    made = manifests(["desk"], account_namespace="fleet", task_namespaces=["default"], registered=services)
    names = {"journeyman-desk:registrations", "journeyman-desk.registrations"}
    new = [each for each in made if each["metadata"]["name"] in names]
    roles = [each for each in new if each["kind"] == "Role"]
    assert [each["metadata"]["namespace"] for each in roles] == ["default", "work"]
    for role, name in zip(roles, ("coder-large", "chat"), strict=True):
        for rule in role["rules"]:
            writes = {"update", "patch", "delete"} & set(rule["verbs"])
            assert rule.get("resourceNames") == ([name] if writes else None)
            assert "watch" not in rule["verbs"]
    (policy,) = (each for each in new if each["kind"] == "ValidatingAdmissionPolicy")
    ((condition,), (validation,)) = policy["spec"]["matchConditions"], policy["spec"]["validations"]
    assert '"system:serviceaccount:fleet:journeyman-desk"' in condition["expression"]
    assert validation["expression"].endswith('in ["default/coder-large", "work/chat"]')
    bound = [each["subjects"][0]["name"] for each in new if each["kind"] == "RoleBinding"]
    assert bound == ["journeyman-desk"] * 2
    assert not [each for each in MADE if "registrations" in each["metadata"]["name"]]


def test_a_user_of_a_certificate_registers_under_these_names_alone() -> None:
    """What an account is granted and denied by name holds for the user, too, and no account is named."""
    made = manifests(
        ["desk"],
        account_namespace="fleet",
        task_namespaces=["default"],
        registered=[("default", "chat")],
        certificates=True,
    )
    (policy, _) = (
        each
        for each in made
        if each["metadata"]["name"] == "journeyman-desk.registrations"
        and each["kind"].startswith("ValidatingAdmissionPolicy")
    )
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == 'request.userInfo.username == "journeyman:node:desk"'
    subjects = [subject for each in made for subject in each.get("subjects", ())]
    assert {each["name"] for each in subjects if each["kind"] == "ServiceAccount"} == {"node-bootstrapper"}


def test_the_command_takes_names_and_refuses_what_is_none() -> None:
    """A name without its namespace could mean any."""
    words = ["cluster", "manifests", "desk", "--register"]
    printed = CliRunner().invoke(cli, [*words, "default/coder"])
    assert "default/coder" in printed.output
    for wrong in ("coder", "default/", "/coder", "default/a/b", "Default/coder", 'a/b"]'):
        refused = CliRunner().invoke(cli, [*words, wrong])
        assert isinstance(refused.exception, UsageError), wrong


def test_the_command_knows_both_credentials() -> None:
    """`--credential certificate --create-namespace` prints what is applied for nodes of `join --csr`."""
    words = ["cluster", "manifests", "desk", "--credential", "certificate", "--create-namespace"]
    done = CliRunner().invoke(cli, words)
    assert list(yaml.safe_load_all(done.output)) == manifests(
        ["desk"],
        account_namespace="foreman-system",
        task_namespaces=["default"],
        certificates=True,
        create_namespaces=True,
    )
