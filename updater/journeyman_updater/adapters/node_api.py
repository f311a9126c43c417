"""The updater's own look at this host's FleetNode: one GET, and a word for a silent agent."""

from __future__ import annotations

import contextlib
import json
import ssl
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from journeyman_updater.adapters.agent_files import AgentFiles
from journeyman_updater.contract.node import NodeFile
from journeyman_updater.core.node_condition import condition_patch
from journeyman_updater.core.requests import request_of
from journeyman_updater.errors import Reason, RequestError, SourceError
from journeyman_updater.model.release import UpdateRequest

# Others write the node, too, and each of them once for a reason of its own.
TELL_TRIES = 4
_PATH = "/apis/foreman.llmkube.dev/v1alpha1/fleetnodes/"


class NodeApi:
    """Implements the port ControlPlane.  All is read anew for each question, as addresses and tokens change.

    Args:
        node_file: `node.json`.
        timeout_seconds: for each part of the request.
    """

    def __init__(self, node_file: Path, *, timeout_seconds: float = 8.0) -> None:
        self._files = AgentFiles(node_file)
        self._timeout_seconds = timeout_seconds

    def is_reachable(self) -> bool:
        """Any answer counts, be it a refusal: the question is whether heartbeats could arrive."""
        try:
            self._get(self._node())
        except (httpx.HTTPError, OSError, ValueError):
            return False
        return True

    def wanted(self) -> UpdateRequest | None:
        """The updateRequest of our own FleetNode; see the port.

        Raises:
            SourceError: Unreachable, HttpStatus.
            RequestError: BadRequest.
        """
        try:
            node = self._node()
            response = self._get(node)
            if response.status_code == HTTPStatus.NOT_FOUND:
                return None
            if response.status_code != HTTPStatus.OK:
                raise SourceError(
                    Reason.HTTP_STATUS, f"{node.server} answered {response.status_code} to the updater"
                )
            found: Any = response.json()
        except (httpx.HTTPError, OSError) as error:
            raise SourceError(Reason.UNREACHABLE, f"the control plane cannot be asked: {error}") from error
        except ValueError as error:
            raise RequestError(Reason.BAD_REQUEST, f"the answer about this node is none: {error}") from error
        return request_of(found if isinstance(found, dict) else {}, node.name)

    def tell(self, told: tuple[bool, str, str], now: datetime) -> None:
        """Writes the condition `Updating` of our own FleetNode, for an agent that is silent.

        Nothing hangs on it: a control plane that does not answer is left as it is, and so is a node that
        others have written each time between our reading and our writing.

        Args:
            told: whether an update is under way, the reason, the message.
            now: the wall clock, aware.
        """
        with contextlib.suppress(httpx.HTTPError, OSError, ValueError, KeyError, TypeError, AttributeError):
            node = self._node()
            for _ in range(TELL_TRIES):
                found = self._get(node)
                if found.status_code != HTTPStatus.OK:
                    return
                patch = condition_patch(found.json(), told, now)
                if patch is None or self._patch_status(node, patch) != HTTPStatus.CONFLICT:
                    return

    def _node(self) -> NodeFile:
        return self._files.node()

    def _get(self, node: NodeFile) -> httpx.Response:
        with self._client(node) as client:
            return client.get(_url(node), extensions=_named(node))

    def _patch_status(self, node: NodeFile, patch: dict[str, Any]) -> int:
        headers = {"Content-Type": "application/merge-patch+json"}
        with self._client(node) as client:
            url, body = _url(node) + "/status", json.dumps(patch)
            return client.patch(url, content=body, headers=headers, extensions=_named(node)).status_code

    def _client(self, node: NodeFile) -> httpx.Client:
        headers = {}
        if token := self._files.token(node):
            headers["Authorization"] = f"Bearer {token}"
        # A CA that is named is the only one that is trusted.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if node.ca_file else ssl.create_default_context()
        self._files.trust(node, context)
        if node.insecure_skip_tls_verify == "true":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._files.show_certificate(node, context)
        return httpx.Client(
            verify=context,
            timeout=self._timeout_seconds,
            headers=headers,
            proxy=node.proxy_url or None,
        )


def _named(node: NodeFile) -> dict[str, str]:
    """The name that the server's certificate must carry, if not that of the URL."""
    return {"sni_hostname": node.tls_server_name} if node.tls_server_name else {}


def _url(node: NodeFile) -> str:
    return node.server.rstrip("/") + _PATH + quote(node.name, safe="")
