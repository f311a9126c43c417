"""One update in a process of its own that tells what is durable, as soon as it is: ROOT VERSION URL SHA256.

Each line is JSON: `{"writes": SHA256}` before a state document becomes visible, `{"state": SHA256, "journal":
BYTES}` once that much of the journal and that state document are promised to survive a power cut.  With
`--no-fsync` as the last argument the promises are lies: nothing is flushed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from journeyman_updater.adapters.fetch_file import FileFetcher
from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.adapters.unpack import TarUnpacker
from journeyman_updater.contract import StateRoot
from journeyman_updater.model.release import UpdateRequest, VersionId, parse_sha256
from journeyman_updater.run import compose
from journeyman_updater.steps.base import Records
from journeyman_updater.transaction import Transaction
from tests.support.kept_host import SETTINGS


def say(**facts: object) -> None:
    """To a pipe, which no power cut on the disk under test touches."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


class ToldFileSystem(RealFileSystem):
    """The real file system, and the promises that are made with it.

    Args:
        root: the state root.
        is_honest: whether it flushes at all.
    """

    def __init__(self, root: StateRoot, *, is_honest: bool) -> None:
        self._root = root
        self._is_honest = is_honest
        self._state = self._digest()
        self._flushed = self._journal = self.size(root.journal_file) or 0

    def fsync(self, path: Path) -> None:
        if self._is_honest:
            super().fsync(path)
        if path == self._root.journal_file:
            was_named = self._journal > 0
            self._flushed = self.size(path) or 0
            self._journal = self._flushed if was_named else 0
        self._promise()

    def fsync_directory(self, path: Path) -> None:
        if self._is_honest:
            super().fsync_directory(path)
        if path == self._root.path:
            self._state, self._journal = self._digest(), self._flushed
        self._promise()

    def sync_tree(self, path: Path) -> None:
        if self._is_honest:
            super().sync_tree(path)
        self._promise()

    def rename(self, source: Path, target: Path) -> None:
        if target == self._root.state_file:
            say(writes=hashlib.sha256(self.read(source)).hexdigest())
        super().rename(source, target)

    def _digest(self) -> str:
        return hashlib.sha256(self.read(self._root.state_file)).hexdigest()

    def _promise(self) -> None:
        say(state=self._state, journal=self._journal)


def main(path: str, version: str, url: str, sha256: str, *flags: str) -> None:
    root = StateRoot(Path(path))
    files = ToldFileSystem(root, is_honest="--no-fsync" not in flags)
    tools = compose(root, SETTINGS, lambda _here, _total: None)
    tools = replace(
        tools,
        files=files,
        records=Records(root, files, tools.clock),
        fetcher=FileFetcher(files, tools.fetcher),
        unpacker=TarUnpacker(files),
    )
    with FlockLocks().hold(root.update_lock):
        transaction = Transaction(tools)
        transaction.recover()
        say(ending=transaction.apply(UpdateRequest(VersionId(version), url, parse_sha256(sha256))).ending)


if __name__ == "__main__":
    main(*sys.argv[1:])
