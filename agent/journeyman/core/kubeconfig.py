"""Kubeconfig files, merged and resolved as kubectl does it, into one `Access`.

Pure: the documents are read by `adapters/access.py`.  The first file that says something wins, an entry as a
whole; paths are relative to the file that holds them.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from journeyman.errors import ConfigError
from journeyman.model.access import Access, CredentialPlugin

PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# section of the file -> the mapping within each of its entries
SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}


@dataclass(frozen=True)
class Entry:
    """One named cluster, user or context.

    Attributes:
        fields: what it says.
        place: the file that says it.
    """

    fields: Mapping[str, Any]
    place: str

    def text(self, name: str) -> str:
        """A text, empty where it is not set.  Raises ConfigError for anything else."""
        value = self.fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigError(f"{name} in {self.place} is no text", "Put it in quotes.")
        return value

    def path(self, name: str) -> str:
        """A path, made absolute by the folder of the file."""
        value = self.text(name)
        return posixpath.join(posixpath.dirname(self.place), value) if value else ""

    def data(self, name: str) -> str:
        """Base64 as text.  Raises ConfigError."""
        try:
            return base64.b64decode(self.text(name), validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise ConfigError(
                f"{name} in {self.place} is no base64 of a PEM text",
                "Take the kubeconfig from its source again, or name a file instead.",
            ) from error


@dataclass
class Kubeconfig:
    """Several files as one.

    Attributes:
        places: the files, for messages.
        current: the name of the current context; empty if none is set.
        entries: section -> name -> entry.
    """

    places: list[str] = field(default_factory=list)
    current: str = ""
    entries: dict[str, dict[str, Entry]] = field(default_factory=lambda: {name: {} for name in SECTIONS})

    @property
    def where(self) -> str:
        return ", ".join(self.places)

    def add(self, place: str, document: object) -> None:
        """Adds a file, of which only that counts which no earlier one has said.

        Args:
            place: its absolute path.
            document: what its YAML holds; None for an empty file.

        Raises:
            ConfigError: it is no kubeconfig.
        """
        self.places.append(place)
        if document is None:
            return
        if not isinstance(document, Mapping):
            raise ConfigError(f"{place} is no kubeconfig: it is not a mapping", "Name another file.")
        current = document.get("current-context") or ""
        self.current = self.current or str(current)
        for section, inner in SECTIONS.items():
            for entry in _listed(place, document, section):
                name, fields = entry.get("name"), entry.get(inner)
                if not isinstance(name, str) or not isinstance(fields, Mapping):
                    raise ConfigError(
                        f"an entry of {section} in {place} has no name, or no mapping `{inner}`",
                        f"Check the indentation below `{section}:`.",
                    )
                self.entries[section].setdefault(name, Entry(fields, place))

    def access(self, context: str = "", *, may_be_insecure: bool = False) -> Access:
        """What a context says.

        Args:
            context: its name; empty for the current one.
            may_be_insecure: whether `insecure-skip-tls-verify` is obeyed.

        Raises:
            ConfigError: there is no such context, or what it says cannot be used; the message says which.
        """
        if not any(self.entries.values()):
            raise ConfigError(f"the kubeconfig {self.where} is empty", "Name another one with --kubeconfig.")
        name = context or self.current
        if not name:
            raise ConfigError(
                f"{self.where} sets no current-context",
                f"Choose with --context one of: {self._names('contexts')}",
            )
        chosen = self._entry("contexts", name, f"{self.where} has no context {name!r}")
        cluster, user = chosen.text("cluster"), chosen.text("user")
        said = f"the context {name!r} in {chosen.place} names"
        where = self._entry("clusters", cluster, f"{said} the cluster {cluster!r}, which is not there")
        who = self._entry("users", user, f"{said} the user {user!r}, which is not there") if user else None
        return _access(f"the context {name!r} of {chosen.place}", where, who, may_be_insecure=may_be_insecure)

    def _entry(self, section: str, name: str, missing: str) -> Entry:
        found = self.entries[section].get(name)
        if found is None:
            raise ConfigError(missing, f"{section.capitalize()} there: {self._names(section)}")
        return found

    def _names(self, section: str) -> str:
        return ", ".join(sorted(self.entries[section])) or "none"


def flattened(access: Access) -> dict[str, Any]:
    """A kubeconfig that says this and nothing else, for a file of our own.

    Args:
        access: with the content of certificates in place of their files, but for a token file, which somebody
            renews where it is.
    """
    cluster = {
        "server": access.server,
        "certificate-authority": access.ca_file,
        "certificate-authority-data": _encoded(access.ca_data),
        "tls-server-name": access.tls_server_name,
        "proxy-url": access.proxy_url,
        "insecure-skip-tls-verify": access.insecure,
    }
    user: dict[str, Any] = {
        "token": access.token,
        "tokenFile": access.token_file,
        "client-certificate-data": _encoded(access.certificate_data),
        "client-key-data": _encoded(access.key_data),
    }
    if (plugin := access.plugin) is not None:
        user["exec"] = {
            "apiVersion": plugin.api_version,
            "command": plugin.command,
            "args": list(plugin.arguments),
            "env": [{"name": name, "value": value} for name, value in plugin.environ.items()],
            "provideClusterInfo": plugin.wants_cluster,
            "interactiveMode": "Never",
            "installHint": plugin.hint,
        }
    name = "journeyman"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {key: value for key, value in cluster.items() if value}}],
        "users": [{"name": name, "user": {key: value for key, value in user.items() if value}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _listed(place: str, document: Mapping[str, Any], section: str) -> Sequence[Mapping[str, Any]]:
    entries = document.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(each, Mapping) for each in entries):
        raise ConfigError(
            f"{section} in {place} is no list of entries", f"Check the indentation below `{section}:`."
        )
    return entries


def _access(place: str, cluster: Entry, user: Entry | None, *, may_be_insecure: bool) -> Access:
    server = cluster.text("server")
    if not server:
        raise ConfigError(f"the cluster of {place} has no server", "Check its indentation.")
    facts: dict[str, Any] = {
        "ca_file": cluster.path("certificate-authority"),
        "ca_data": cluster.data("certificate-authority-data"),
        "tls_server_name": cluster.text("tls-server-name"),
        "proxy_url": _proxy(cluster),
    }
    if facts["ca_data"]:
        # kubectl prefers what is in the file itself.
        facts["ca_file"] = ""
    insecure = cluster.fields.get("insecure-skip-tls-verify") is True
    if insecure and not may_be_insecure:
        raise ConfigError(
            f"{place} asks not to prove the server's certificate, which lets anybody read the credential",
            "Set certificate-authority there, or say insecure_skip_tls_verify = true in config.toml, too.",
        )
    if insecure and (facts["ca_file"] or facts["ca_data"]):
        raise ConfigError(f"{place} has a CA and insecure-skip-tls-verify", "Leave one of them out.")
    who = {} if user is None else _user(place, user)
    return Access(server=_without_user(server, who), place=place, insecure=insecure, **facts, **who)


def _user(place: str, user: Entry) -> dict[str, Any]:
    for gone, since in (("auth-provider", "1.26"), ("username", "1.19")):
        if user.fields.get(gone):
            raise ConfigError(
                f"the user of {place} has {gone}, which Kubernetes dropped in {since}",
                "Use a token, a client certificate or an exec plugin.",
            )
    facts: dict[str, Any] = {
        "token": user.text("token"),
        "token_file": user.path("tokenFile"),
        "certificate_file": user.path("client-certificate"),
        "certificate_data": user.data("client-certificate-data"),
        "key_file": user.path("client-key"),
        "key_data": user.data("client-key-data"),
    }
    # kubectl prefers data to files of certificates, and a token file to a token, as that is renewed.
    for winner, loser in (
        ("certificate_data", "certificate_file"), ("key_data", "key_file"), ("token_file", "token")
    ):  # fmt: skip
        if facts[winner]:
            facts[loser] = ""
    has_certificate = bool(facts["certificate_data"] or facts["certificate_file"])
    if has_certificate != bool(facts["key_data"] or facts["key_file"]):
        missing = "client-key" if has_certificate else "client-certificate"
        raise ConfigError(
            f"the user of {place} has no {missing}", "A certificate is of use only with its key."
        )
    plugin = user.fields.get("exec")
    has_token = bool(facts["token"] or facts["token_file"])
    return facts | {"plugin": None if plugin is None or has_token else _plugin(place, user, plugin)}


def _plugin(place: str, user: Entry, said: object) -> CredentialPlugin:
    if not isinstance(said, Mapping):
        raise ConfigError(f"exec of the user of {place} is no mapping", "Check its indentation.")
    entry = Entry(said, user.place)
    command, version = entry.text("command"), entry.text("apiVersion")
    if not command:
        raise ConfigError(f"exec of the user of {place} has no command", "Name the plugin there.")
    if version not in PLUGIN_VERSIONS:
        raise ConfigError(
            f"exec of the user of {place} speaks {version or 'no apiVersion'}, which is not served here",
            f"Have the plugin speak {PLUGIN_VERSIONS[0]}.",
        )
    if entry.text("interactiveMode") == "Always":
        raise ConfigError(
            f"exec of the user of {place} wants a terminal, and an agent has none",
            "Use a token, a client certificate, or a plugin that asks nobody.",
        )
    try:
        arguments = tuple(str(each) for each in said.get("args") or ())
        environ = {str(each["name"]): str(each["value"]) for each in said.get("env") or ()}
    except (TypeError, KeyError) as error:
        raise ConfigError(
            f"args or env of exec of the user of {place} are no lists", "Check them."
        ) from error
    return CredentialPlugin(
        # As kubectl: a path with a slash is relative to the file, a bare name is looked up on PATH.
        command=entry.path("command") if "/" in command else command,
        arguments=arguments,
        environ=environ,
        api_version=version,
        wants_cluster=said.get("provideClusterInfo") is True,
        hint=entry.text("installHint"),
    )


def _proxy(cluster: Entry) -> str:
    url = cluster.text("proxy-url")
    if url and urlsplit(url).scheme not in {"http", "https"}:
        raise ConfigError(
            f"proxy-url in {cluster.place} is no http or https URL: {url!r}",
            "Other proxies are not served here.",
        )
    return url


def _without_user(server: str, who: Mapping[str, Any]) -> str:
    """The URL without what it carries of a user: where a token is named that says the same.

    The admin.kubeconfig of the embedded plane carries it, as over plain http kubectl sends nothing else.
    """
    parts = urlsplit(server)
    if parts.username is None or not (who.get("token") or who.get("token_file")):
        return server
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
