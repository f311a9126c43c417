"""One update in a process of its own, so that a test can kill it: ROOT VERSION URL SHA256."""

from __future__ import annotations

import sys
from pathlib import Path

from journeyman_updater.contract import StateRoot
from journeyman_updater.model.release import UpdateRequest, VersionId, parse_sha256
from journeyman_updater.run import Updater
from tests.support.kept_host import SETTINGS

if __name__ == "__main__":
    path, version, url, sha256 = sys.argv[1:]
    request = UpdateRequest(VersionId(version), url, parse_sha256(sha256))
    sys.stdout.write(Updater(StateRoot(Path(path)), SETTINGS).apply(request).ending)
