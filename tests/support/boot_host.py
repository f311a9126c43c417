"""Inside of a container: keeps a host at a fixed place and leaves it running, for reboots.

Root has it kept by the system's manager, and others by their own.

`python -m tests.support.boot_host FOLDER [BEHAVIOUR]`; with one, 0.2.0 is put on trial and left there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.kept_host import dummy
from tests.support.managed_hosts import SystemdHost


def main(folder: str, behaviour: str = "") -> None:
    host = SystemdHost(Path(folder), user=os.geteuid() != 0)
    host.start()
    if behaviour:
        sys.stdout.write(host.updater().apply(host.request(dummy("0.2.0", behaviour))).ending)


if __name__ == "__main__":
    main(*sys.argv[1:])
