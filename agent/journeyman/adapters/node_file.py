"""Tells the updater who this node is and how it reaches the control plane."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import structlog

from journeyman.adapters.credentials import Held
from journeyman.model.access import Access
from journeyman_updater.contract import StateRoot, write_durably
from journeyman_updater.contract.node import NodeFile

log = structlog.get_logger(__name__)


class NodeFileKeeper:
    """Keeps `node.json` current, and beside it what the updater could not read itself.

    The updater knows neither kubeconfig files nor plugins, so what these hold is kept in files of the state
    root, 0600: no more than the credential that the agent itself sends.

    Args:
        root: the state root.
        node_name: the name of the FleetNode.
        access: how the agent reaches the control plane.
    """

    def __init__(self, root: StateRoot, node_name: str, access: Access) -> None:
        self._root = root
        self._name = node_name
        self._access = access
        self._kept: tuple[NodeFile, Mapping[Path, str]] | None = None

    def keep_if_possible(self, held: Held) -> None:
        """The same for an agent at work: a full disk is no reason to stop, and the next beat tries again."""
        try:
            self.keep(held)
        except OSError as error:
            log.warning("node_file_not_written", error=str(error))

    def keep(self, held: Held) -> None:
        """Writes what has changed.

        Args:
            held: what the agent sends at this moment.

        Raises:
            OSError: it cannot be written.
        """
        access, files = self._access, dict[Path, str]()

        def file_of(path: str, content: str, name: str) -> str:
            if path or not content:
                return path
            files[self._root.credentials / name] = content
            return str(self._root.credentials / name)

        certificate, key = held.certificate or (access.certificate_data, access.key_data)
        by_plugin = held.certificate is not None
        node = NodeFile(
            name=self._name,
            server=access.server,
            ca_file=file_of(access.ca_file, access.ca_data, "ca.crt"),
            token_file=file_of(access.token_file, held.token, "token"),
            certificate_file=file_of("" if by_plugin else access.certificate_file, certificate, "client.crt"),
            key_file=file_of("" if by_plugin else access.key_file, key, "client.key"),
            tls_server_name=access.tls_server_name,
            proxy_url=access.proxy_url,
            insecure_skip_tls_verify="true" if access.insecure else "",
        )
        if (node, files) == self._kept:
            return
        for path, content in files.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _content_of(path) != content.encode():
                write_durably(path, content.encode())
        if _content_of(self._root.node_file) != node.to_json():
            write_durably(self._root.node_file, node.to_json())
        self._kept = node, files


def _content_of(path: Path) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return None
