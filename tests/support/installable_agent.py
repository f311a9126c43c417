"""A release that `journeyman install` takes, made in a moment: agent and updater of this tree, by reference.

Guard and parent are whole in it, as a service starts them; the rest finds its code where the tests do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from journeyman import __version__
from journeyman_updater import guard, parent
from journeyman_updater.adapters.minisign_keys import SecretKey
from tests.simulator.releases import SmallRelease, bind, sign

AGENT = """#!/bin/sh
{says}PYTHONPATH={packages} PYTHONDONTWRITEBYTECODE=1 exec {python} -m journeyman "$@"
"""
# Says who it is without asking the code, which is that of another version.
SAYS = """[ "$1" = version ] && {{ echo '{{"product": "journeyman", "version": "{version}"}}'; exit; }}
"""
# Ends as soon as it is to run.
CRASHING = """#!/bin/sh
{says}echo "it is broken on purpose" >&2
exit 1
"""
UPDATER = """import sys
for name in [name for name in sys.modules if name.split(".")[0] == "journeyman_updater"]:
    del sys.modules[name]
sys.path[:0] = {path!r}
from journeyman_updater.cli import main
sys.exit(main())
"""


def installable_agent(
    folder: Path,
    key: SecretKey,
    *,
    path: Sequence[str] = tuple(sys.path),
    crashes: bool = False,
    version: str = __version__,
    sequence: int = 1,
) -> Path:
    """Builds it, signed.

    Args:
        folder: is made.
        key: signs it.
        path: where the code is found; in a container another one than here.
        crashes: whether its agent ends at once.
        version: that it says it is; the code is this tree's all the same.
        sequence: of its signature; a later release needs a greater one.
    """
    says = SAYS.format(version=version) if crashes or version != __version__ else ""
    found = [each for each in path if each]
    program = CRASHING if crashes else AGENT
    files = {
        f"lib/journeyman_updater/{Path(str(module.__file__)).name}": Path(str(module.__file__)).read_bytes()
        for module in (guard, parent)
    }
    files |= {
        "lib/journeyman_updater/__init__.py": b"",
        "lib/journeyman_updater/__main__.py": UPDATER.format(path=found).encode(),
    }
    folder.mkdir(parents=True)
    release = SmallRelease(
        version=version,
        program=program.format(packages=":".join(found), python=sys.executable, says=says),
        sequence=sequence,
        more=tuple(files.items()),
    )
    artifact = release.build(folder)
    signature = artifact.with_name(artifact.name + ".minisig")
    signature.write_bytes(sign(artifact, key, bind(artifact, version=version, sequence=sequence)))
    return artifact
