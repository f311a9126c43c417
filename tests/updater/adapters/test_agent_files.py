"""What root reads on the word of the agent's user, and what it does not."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.adapters.agent_files import AgentFiles
from journeyman_updater.contract.node import NodeFile

AGENT = 65534
SECRET = "a secret of root"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state root's `agent/`, which belongs to a user who may not read a file of root's beside it."""
    if os.geteuid() != 0:
        pytest.skip("cannot run here: only root can act as another user")
    found = tmp_path / "agent"
    found.mkdir(mode=0o700)
    os.chown(found, AGENT, AGENT)
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    reached = [path for path in tmp_path.parents if not path.stat().st_mode & 0o001]
    modes = {path: path.stat().st_mode for path in (tmp_path, *reached)}
    for path, mode in modes.items():
        path.chmod(mode | 0o001)
    yield found
    for path, mode in modes.items():
        path.chmod(mode)


def test_a_secret_of_root_is_not_read_on_the_agents_word(folder: Path) -> None:
    """A path to another user's file, named or linked to, is refused by the kernel, and rights come back."""
    files, secret = AgentFiles(folder / "node.json"), str(folder.parent / "secret")
    (folder / "link").symlink_to(secret)
    for name in (secret, str(folder / "link")):
        node = NodeFile("n", "http://127.0.0.1:9", token_file=name, ca_file=name, certificate_file=name)
        with pytest.raises(PermissionError):
            files.token(node)
        with pytest.raises(PermissionError):
            files.trust(node, ssl.create_default_context())
        with pytest.raises(PermissionError):
            files.show_certificate(node, ssl.create_default_context())
    assert (os.geteuid(), os.getegid()) == (0, os.getgid())
    assert Path(secret).read_text() == SECRET


def test_the_agents_own_files_are_read(folder: Path) -> None:
    """What the agent's user may read is read, by whatever way it is named."""
    token = folder / "token"
    token.write_text("its own\n")
    os.chown(token, AGENT, AGENT)
    token.chmod(0o600)
    (folder / "link").symlink_to(token)
    node = NodeFile("n", "http://127.0.0.1:9", token_file=str(folder / "link"))
    (folder / "node.json").write_bytes(node.to_json())
    (folder / "node.json").chmod(0o644)
    files = AgentFiles(folder / "node.json")
    assert files.node() == node
    assert files.token(node) == "its own"


def test_nobody_is_waited_for(folder: Path) -> None:
    """A fifo, a device and a file that never ends are errors at once."""
    files = AgentFiles(folder / "node.json")
    os.mkfifo(folder / "fifo", 0o666)
    (folder / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    for name in (str(folder / "fifo"), str(folder / "large"), "/dev/zero", str(folder)):
        with pytest.raises(OSError, match=r"regular|larger|directory"):
            files.token(NodeFile("n", "", token_file=name))
    os.mkfifo(folder / "node.json")
    with pytest.raises(OSError, match="regular"):
        files.node()
