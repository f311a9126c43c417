"""Kubeconfig documents become one access, or one sentence."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from journeyman.core.kubeconfig import Kubeconfig
from journeyman.errors import ConfigError
from journeyman.model.access import Access, CredentialPlugin

PLACE = "/home/me/.kube/config"
SERVER = "https://192.0.2.10:6443"


def document(user: Any = None, **cluster: Any) -> dict[str, Any]:
    """A whole kubeconfig of one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "home",
        "clusters": [{"name": "lab", "cluster": {"server": SERVER} | cluster}],
        "users": [{"name": "me", "user": user or {}}],
        "contexts": [{"name": "home", "context": {"cluster": "lab", "user": "me"}}],
    }


def resolved(*documents: Any, context: str = "", may_be_insecure: bool = False) -> Access:
    config = Kubeconfig()
    for number, each in enumerate(documents):
        config.add(PLACE if number == 0 else f"/other/{number}/config", each)
    return config.access(context, may_be_insecure=may_be_insecure)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


PLUGIN: dict[str, Any] = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "get-token",
    "args": ["-x"],
}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "t"}, {"token": "t"}),
        ({"tokenFile": "token", "token": "old"}, {"token_file": "/home/me/.kube/token"}),
        (
            {"client-certificate": "a.crt", "client-key": "/keys/a.key"},
            {"certificate_file": "/home/me/.kube/a.crt", "key_file": "/keys/a.key"},
        ),
        (
            {"client-certificate-data": b64("C"), "client-key-data": b64("K"), "client-key": "x"},
            {"certificate_data": "C", "key_data": "K"},
        ),
        (
            {"exec": PLUGIN | {"env": [{"name": "A", "value": "b"}], "provideClusterInfo": True}},
            {
                "plugin": CredentialPlugin(
                    "get-token", ("-x",), {"A": "b"}, PLUGIN["apiVersion"], wants_cluster=True
                )
            },
        ),
        ({"exec": PLUGIN | {"command": "./bin/get"}}, {"plugin": "/home/me/.kube/./bin/get"}),
        ({"exec": PLUGIN, "token": "t"}, {"token": "t"}),
        ({}, {}),
    ],
    ids=[
        "token",
        "token file",
        "relative paths",
        "data",
        "exec",
        "exec by path",
        "token before exec",
        "nobody",
    ],
)
def test_each_form_of_credential_is_understood(user: dict[str, Any], expected: dict[str, Any]) -> None:
    """Each form of a user is found in the access, and nothing else; paths are relative to the file."""
    access = resolved(document(user))
    assert access.server == SERVER
    names = ("token", "token_file", "certificate_file", "key_file", "certificate_data", "key_data", "plugin")
    found = {name: value for name in names if (value := getattr(access, name))}
    if isinstance(expected.get("plugin"), str):
        assert access.plugin is not None
        found["plugin"] = access.plugin.command
    assert found == expected


def test_what_a_cluster_says_is_understood() -> None:
    """CA, name of the server and proxy of a cluster are found in the access."""
    said = {"certificate-authority": "ca.crt", "tls-server-name": "api.lab", "proxy-url": "http://proxy:3128"}
    access = resolved(document(**said))
    assert (access.ca_file, access.tls_server_name) == ("/home/me/.kube/ca.crt", "api.lab")
    assert access.proxy_url == "http://proxy:3128"
    both = resolved(document(**said | {"certificate-authority-data": b64("CA")}))
    assert (both.ca_file, both.ca_data) == ("", "CA")


def test_the_first_file_wins_entry_by_entry() -> None:
    """Of several files the first one to say something wins, a user as a whole, and the others add to it."""
    second = document({"token": "second"}, server="https://second")
    second["users"].append({"name": "you", "user": {"token": "yours"}})
    second["contexts"].append({"name": "work", "context": {"cluster": "lab", "user": "you"}})
    second["current-context"] = "work"
    documents = (document({"token": "first"}), second)
    assert resolved(*documents).token == "first"
    assert resolved(*documents, context="work").token == "yours"
    assert resolved(*documents, context="work").server == SERVER


def test_an_unproven_server_must_be_wanted_twice() -> None:
    """insecure-skip-tls-verify is obeyed only where our own settings say so, too, and never beside a CA."""
    said = document(**{"insecure-skip-tls-verify": True})
    with pytest.raises(ConfigError, match="asks not to prove the server's certificate") as refused:
        resolved(said)
    assert "insecure_skip_tls_verify = true" in refused.value.advice
    assert resolved(said, may_be_insecure=True).insecure
    with pytest.raises(ConfigError, match="has a CA and insecure-skip-tls-verify"):
        resolved(
            document(**{"insecure-skip-tls-verify": True, "certificate-authority": "x"}), may_be_insecure=True
        )


def test_the_url_of_the_embedded_planes_kubeconfig_loses_its_password() -> None:
    """What the URL says of the user is dropped where the user has the same token, and stays otherwise."""
    plain = document({"token": "t"}, server="http://admin:t@127.0.0.1:6480")
    assert resolved(plain).server == "http://127.0.0.1:6480"
    assert "admin:t@" in resolved(document(server="http://admin:t@127.0.0.1:6480")).server


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (None, "is empty"),
        ({}, "is empty"),
        (["a"], "is no kubeconfig: it is not a mapping"),
        (document() | {"clusters": {"name": "lab"}}, "clusters in .* is no list of entries"),
        (document() | {"users": [{"name": "me"}]}, "an entry of users in .* no mapping `user`"),
        (document() | {"current-context": ""}, "sets no current-context"),
        (document() | {"current-context": "gone"}, "has no context 'gone'"),
        (document() | {"clusters": []}, "names the cluster 'lab', which is not there"),
        (document() | {"users": []}, "names the user 'me', which is not there"),
        (document(server=""), "has no server"),
        (document(server=7), "server in .* is no text"),
        (document({"client-certificate": "a.crt"}), "has no client-key"),
        (document({"client-key": "a.key"}), "has no client-certificate"),
        (document({"client-key-data": "&"}), "client-key-data in .* is no base64"),
        (document({"username": "a", "password": "b"}), "username, which Kubernetes dropped"),
        (document({"auth-provider": {"name": "gcp"}}), "auth-provider, which Kubernetes dropped"),
        (document({"exec": {"command": "x", "apiVersion": "v7"}}), "speaks v7, which is not served"),
        (document({"exec": PLUGIN | {"command": ""}}), "has no command"),
        (document({"exec": PLUGIN | {"interactiveMode": "Always"}}), "wants a terminal"),
        (document({"exec": PLUGIN | {"env": [{"name": "A"}]}}), "args or env of exec"),
        (document({"exec": "x"}), "exec of the user of .* is no mapping"),
        (document(**{"proxy-url": "socks5://x"}), "proxy-url in .* is no http or https URL"),
    ],
)
def test_each_breakage_has_its_sentence(broken: Any, says: str) -> None:
    """What cannot be used is refused with a sentence that names file and field, and what to do."""
    with pytest.raises(ConfigError, match=says) as refused:
        resolved(broken)
    assert PLACE in refused.value.message
    assert refused.value.advice


def test_a_missing_context_is_answered_with_those_there_are() -> None:
    """Whoever asks for a context that is not there is told the names of the others."""
    with pytest.raises(ConfigError) as refused:
        resolved(document(), context="work")
    assert refused.value.advice == "Contexts there: home"
