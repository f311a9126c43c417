"""An API server as the conformance suite sees it: any that a kubeconfig names, asked over plain HTTP.

What it answers is also written down, with all that differs from run to run replaced by a name, so that the
answers of a real server can be kept and those of another one be held against them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from journeyman.adapters.access import access_of
from journeyman.adapters.credentials import credential_of
from journeyman.adapters.system_clock import SystemClock
from journeyman.adapters.tls import context_for, with_contents
from journeyman.model.access import Access
from journeyman.settings import Settings

JsonObject = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_TIMEOUT_SECONDS = 60.0
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
# Bookkeeping of the store, within messages.
_INNER = re.compile(r"StorageError: .*AdditionalErrorMsg: |(?<=in record \()\d+(?=\))")
_AGE = re.compile(r"\d+[smh](\d+[sm])?")
# Bookkeeping of the server that no client of ours reads, and that older and newer servers do otherwise.
_UNREAD = ("managedFields", "selfLink", "remainingItemCount")
# What these say beside code, reason and causes are words of each release, for people.
_FREE_WORDING = (400, 401, 405, 415, 422)
_INVALID, _CONFLICT = 422, 409


@dataclass
class Transcript:
    """Answers, with names for what differs from run to run: the first identity that is seen is `uid-1`."""

    exchanges: list[JsonObject] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def add(self, asked: str, code: int, body: Any) -> None:
        """Writes down one answer."""
        said = self._plain(body, code)
        self.exchanges.append({"asked": self._renamed(asked), "code": code, "answer": said})

    def _plain(self, value: Any, code: int) -> Any:
        if isinstance(value, list):
            return [self._plain(each, code) for each in value]
        if isinstance(value, str):
            return _TIME.sub("<time>", _INNER.sub("", self._renamed(value)))
        if not isinstance(value, dict):
            return value
        if value.get("kind") == "Table":
            value = _without_ages(value)
        if value.get("kind") == "Status" and code in _FREE_WORDING:
            value = _without_wording(value, code)
        if value.get("kind") == "Status" and code == _CONFLICT:
            # Kubernetes names the kind here in one release, and the plural in another.
            details = {name: inner for name, inner in value["details"].items() if name != "kind"}
            value = {**value, "details": details}
        return {
            name: self._metadata(inner, value, code) if name == "metadata" else self._plain(inner, code)
            for name, inner in value.items()
        }

    def _metadata(self, metadata: Any, whole: JsonObject, code: int) -> Any:
        if not isinstance(metadata, dict):
            return metadata
        kept = {name: value for name, value in metadata.items() if name not in _UNREAD}
        is_object = "uid" in kept
        if is_object:
            self._names.setdefault(kept["uid"], f"uid-{1 + self._count('uid')}")
        if "resourceVersion" in kept:
            version = kept["resourceVersion"]
            # That of a list or a bookmark is the whole server's, to which others write, too.
            kept["resourceVersion"] = self._version(whole, version) if is_object else "<version>"
        return self._plain(kept, code)

    def _version(self, whole: JsonObject, version: str) -> str:
        kind = f"{whole['metadata']['uid']}@{version}"
        return self._names.setdefault(kind, f"version-{1 + self._count('version')}")

    def _count(self, kind: str) -> int:
        return sum(name.startswith(f"{kind}-") for name in self._names.values())

    def _renamed(self, text: str) -> str:
        for found, name in self._names.items():
            text = text.replace(found, name)
        return text


def _without_ages(table: JsonObject) -> JsonObject:
    """Ages are words of the clock; descriptions of columns are for people."""
    columns = [
        {name: each[name] for name in ("name", "type", "format", "priority")}
        for each in table["columnDefinitions"] or ()
    ]
    rows = [
        {**row, "cells": ["<age>" if _is_age(cell) else cell for cell in row["cells"]]}
        for row in table["rows"]
    ]
    return {**table, "columnDefinitions": columns, "rows": rows}


def _is_age(cell: Any) -> bool:
    return isinstance(cell, str) and _AGE.fullmatch(cell) is not None


def _without_wording(status: JsonObject, code: int) -> JsonObject:
    details = dict(status.get("details") or {}) if code == _INVALID else {}
    if "causes" in details:
        causes = {_cause(each) for each in details["causes"]}
        details["causes"] = [list(each) for each in sorted(causes)]
    return {**status, "message": "<words>", "details": details}


def _cause(cause: JsonObject) -> tuple[str, str]:
    """Older releases name the list and not the member, and know no reason of its own for a wrong type."""
    field = re.sub(r"\[\d+\]", "", cause["field"])
    return field, cause["reason"].replace("FieldValueTypeInvalid", "FieldValueInvalid")


@dataclass(frozen=True)
class ApiServer:
    """One identity at one API server.

    Attributes:
        name: `plane`, `real` or `given`.
        kubeconfig: of an administrator.
        client: sends as the identity.
        transcript: of what was answered; shared by all identities of a test.
        made_paths: the objects that the test has made.
    """

    name: str
    kubeconfig: Path
    client: httpx.Client
    transcript: Transcript = field(default_factory=Transcript)
    made_paths: list[str] = field(default_factory=list)

    @property
    def ca_data(self) -> str:
        """The PEM text of its CA; empty where the kubeconfig names none."""
        return with_contents(_access(self.kubeconfig)).ca_data

    @property
    def minor(self) -> int:
        """The release of Kubernetes whose API it serves: 36 of 1.36."""
        return int(re.sub(r"\D", "", self.client.get("/version").json()["minor"]))

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "",
        accept: str = "application/json",
        record: bool = True,
        query: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Asks, and writes the answer down.

        Args:
            method: of HTTP.
            path: below the server's URL.
            body: sent as JSON, unless it is None.
            content_type: of the body; that of the method where it is left out.
            accept: the Accept header.
            record: whether the answer is one that every conformant server gives.
            query: parameters.
        """
        headers = {"Accept": accept}
        content = None
        if body is not None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = content_type or (
                MERGE_PATCH if method == "PATCH" else "application/json"
            )
        reply = self.client.request(method, path, content=content, headers=headers, params=query)
        if record:
            words = "&".join(f"{name}={value}" for name, value in (query or {}).items())
            asked = f"{method} {path}{'?' if words else ''}{words}"
            self.transcript.add(asked, reply.status_code, reply.json())
        return reply

    def made(self, path: str, body: JsonObject) -> JsonObject:
        """Creates an object that is deleted after the test, and returns it as stored."""
        own = f"{path}/{body['metadata']['name']}"
        # What a run that was cut off has left on a server that lives on.
        self.client.delete(own)
        self.made_paths.append(own)
        reply = self.call("POST", path, body)
        assert reply.status_code == httpx.codes.CREATED, reply.text
        stored: JsonObject = reply.json()
        return stored

    def clean_up(self) -> None:
        """Deletes what the test has made."""
        for path in reversed(self.made_paths):
            self.client.delete(path)

    @contextmanager
    def watching(
        self, path: str, *, accept: str = "application/json", **query: str
    ) -> Iterator[Iterator[JsonObject]]:
        """The events of a watch; the server ends it by `timeoutSeconds`."""
        with self.client.stream(
            "GET", path, params={"watch": "true", **query}, headers={"Accept": accept}
        ) as reply:
            assert reply.status_code == httpx.codes.OK, reply.read()
            yield (json.loads(line) for line in reply.iter_lines() if line)

    @contextmanager
    def as_bearer(self, token: str) -> Iterator[ApiServer]:
        """The same server as somebody else sees it."""
        with client_of(self.kubeconfig, token) as client:
            yield replace(self, client=client)


def _access(kubeconfig: Path) -> Access:
    return access_of(Settings(state_root=Path("/nowhere"), kubeconfig=kubeconfig), {})


@contextmanager
def client_of(kubeconfig: Path, token: str = "") -> Iterator[httpx.Client]:
    """A client that speaks as the kubeconfig says, or with a bearer token in place of its credential."""
    access = _access(kubeconfig)
    if token:
        access = replace(access, certificate_file="", certificate_data="", key_file="", key_data="")
        headers = {"Authorization": f"Bearer {token}"}
    else:
        credential = credential_of(access, SystemClock(), plugin_seconds=_TIMEOUT_SECONDS)
        headers = asyncio.run(credential.headers())
    with httpx.Client(
        base_url=access.server, verify=context_for(access), headers=headers, timeout=_TIMEOUT_SECONDS,
        trust_env=False, proxy=access.proxy_url or None,
    ) as client:  # fmt: skip
        yield client


def differences(recorded: Any, answered: Any, place: str = "") -> Iterator[str]:
    """Each place where an answer is another one than the recorded, one line each."""
    if isinstance(recorded, Mapping) and isinstance(answered, Mapping):
        for name in sorted(recorded.keys() | answered.keys()):
            yield from differences(recorded.get(name), answered.get(name), f"{place}.{name}")
    elif isinstance(recorded, list) and isinstance(answered, list) and len(recorded) == len(answered):
        for position, (left, right) in enumerate(zip(recorded, answered, strict=True)):
            yield from differences(left, right, f"{place}[{position}]")
    elif recorded != answered:
        yield f"{place}: recorded {json.dumps(recorded)}, answered {json.dumps(answered)}"
