"""`node.json` and the files that it names, read with the rights of the agent's user and no more.

In a system install the updater is root and that file is written by the agent.  Read as root, a path in it
would send any file of this host to any server that it names.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.contract.node import NodeFile

_LARGEST_BYTES = 1024 * 1024


class AgentFiles:
    """What the updater knows of the control plane.

    Args:
        node_file: `StateRoot.node_file`; whoever owns its folder is the agent's user.
    """

    def __init__(self, node_file: Path) -> None:
        self._node_file = node_file

    def node(self) -> NodeFile:
        """The whole of `node.json`.

        Raises:
            OSError: it cannot be read.
            ValueError: it is damaged.
        """
        try:
            return NodeFile.from_json(self._read(self._node_file))
        except RecursionError as error:
            raise ValueError("not a node file: it is nested too deep") from error

    def token(self, node: NodeFile) -> str:
        """The bearer token, or an empty string where none is named.

        Raises:
            OSError: the file cannot be read by the agent's user.
            ValueError: it is no text.
        """
        return self._text(node.token_file).strip()

    def trust(self, node: NodeFile, context: ssl.SSLContext) -> None:
        """Lets a context trust the control plane's CA, if one is named; what it trusts already stays.

        Raises:
            OSError: the file cannot be read by the agent's user, or holds no certificate.
            ValueError: it is no text.
        """
        if text := self._text(node.ca_file):
            context.load_verify_locations(cadata=text)

    def show_certificate(self, node: NodeFile, context: ssl.SSLContext) -> None:
        """Lets a context use the client certificate, if one is named; raises as `trust`."""
        if not node.certificate_file:
            return
        # OpenSSL takes paths alone, and must not open those as root.
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder, "certificate"), Path(folder, "key")
            RealFileSystem().write(certificate, self._read(self._named(node.certificate_file)))
            if node.key_file:
                RealFileSystem().write(key, self._read(self._named(node.key_file)))
            context.load_cert_chain(certificate, key if node.key_file else None)

    def _text(self, name: str) -> str:
        return self._read(self._named(name)).decode() if name else ""

    def _named(self, name: str) -> Path:
        # A certificate of the system is often a link; who follows it has the agent's rights.
        with _as_owner_of(self._node_file.parent):
            return Path(name).resolve(strict=True)

    def _read(self, path: Path) -> bytes:
        with _as_owner_of(self._node_file.parent):
            return RealFileSystem().read(path, limit_bytes=_LARGEST_BYTES)


@contextlib.contextmanager
def _as_owner_of(folder: Path) -> Iterator[None]:
    """Gives root's rights up for a moment, where we have them and the folder is another user's.

    The whole process is concerned; the updater has one thread.
    """
    owner = folder.lstat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups(_groups_of(owner))
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _groups_of(owner: os.stat_result) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(owner.st_uid).pw_name, owner.st_gid)
    except KeyError:
        return [owner.st_gid]
