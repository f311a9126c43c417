"""What runs now as the tree of a release, so that nobody can pull it away from under an agent.

Whoever installs with pip, pipx or Homebrew, or works in a checkout, has our packages and what they need in
the path of this interpreter.  What is named there as ours is copied with all that it requires; extras go
along where they are here as a whole.  The tree runs on this minor version of Python alone, as native modules
do.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from journeyman_updater.adapters.host_facts import this_host
from journeyman_updater.adapters.release_tree import describe, finish
from journeyman_updater.core.fit import PRODUCT
from journeyman_updater.errors import HostError, Reason
from journeyman_updater.model.manifest import ENTRY_POINT, MANIFEST_NAME, Manifest
from journeyman_updater.model.release import VersionId

PACKAGES = ("journeyman", "journeyman_updater", "journeyman_plane")
EXTRAS = ("plane", "native", "llama", "mlx")
GUARD_PROTOCOL = 1

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?", re.ASCII)
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")
_CONDITION = re.compile(r"\b(sys_platform|os_name|platform_\w+|python_\w+|implementation_\w+)\b")
# The rest of a wheel's own folder speaks of an installation that the tree is none of.
_SHIPPED_FACTS = re.compile(r"[^/]+\.dist-info/(METADATA|entry_points\.txt|licenses/.+|LICEN[CS]E.*)")


def running_files() -> dict[str, Path]:
    """Where each file of the tree's `lib/` lies now, by its path there.

    Raises:
        HostError: SelfUpdateUnavailable; what runs cannot be told from what else is installed here.
    """
    library = Path(__file__).resolve().parents[2]
    if (library.parent / MANIFEST_NAME).is_file() and (library.parent / ENTRY_POINT).is_file():
        # It is a release already, and all of it belongs together.
        return {path.relative_to(library).as_posix(): path for path in _sources(library)}
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for folder in _folders_of(package):
            found |= {f"{package}/{path.relative_to(folder).as_posix()}": path for path in _sources(folder)}
    for each in _distributions():
        found = {**_files_of(each), **found}
    return found


def lay_out_running(tree: Path, version: str) -> Manifest:
    """Fills an empty folder with a tree of what runs now, but for its manifest, which is returned.

    Args:
        tree: the folder.
        version: of what runs now.

    Raises:
        HostError: as `running_files`.
        OSError: the folder cannot be filled.
    """
    for name, source in running_files().items():
        target = tree / "lib" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)
    host, spelled = this_host(), VersionId(version)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    finish(tree, [python])
    return Manifest(
        product=PRODUCT,
        version=spelled,
        os=host.os,
        arch=host.arch,
        sequence=spelled.sequence(),
        guard_protocol=GUARD_PROTOCOL,
        python_min=python,
        python_max=python,
        files=describe(tree),
    )


def _sources(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _folders_of(package: str) -> list[Path]:
    found = importlib.util.find_spec(package)
    return [Path(folder) for folder in (found.submodule_search_locations or [])] if found else []


def _distributions() -> list[Distribution]:
    """Ours and all that it needs."""
    ours = _distribution(PRODUCT)
    if ours is None:
        raise _cannot("this Journeyman runs from a folder that nothing has installed")
    found = {_canonical(PRODUCT): ours}
    required = _with_needs(ours, "")
    if required is None:
        raise _cannot("something that Journeyman needs is missing here")
    found |= required
    for extra in EXTRAS:
        found |= _with_needs(ours, extra) or {}
    return list(found.values())


def _with_needs(
    wanted: Distribution, extra: str, seen: dict[str, Distribution] | None = None
) -> dict[str, Distribution] | None:
    """What a distribution or one of its extras requires, and so on; None if something is missing."""
    known = {} if seen is None else seen
    for name, extras, marker in _requirements(wanted, extra):
        found = _distribution(name)
        if found is None and _CONDITION.search(marker):
            # For another platform, or another Python: what is needed here is here.
            continue
        if found is None:
            return None
        for each in ("", *extras):
            key = f"{_canonical(name)}[{each}]" if each else _canonical(name)
            if key not in known:
                known[key] = found
                if _with_needs(found, each, known) is None:
                    return None
    return known


def _requirements(wanted: Distribution, extra: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Name, extras and marker of each requirement that belongs to an extra, or to none where it is empty."""
    for line in wanted.requires or []:
        parsed = _REQUIREMENT.match(line)
        if parsed is None:
            continue
        name, extras, marker = parsed[1], parsed[2] or "", parsed[3] or ""
        if set(_EXTRA.findall(marker)) == ({extra} if extra else set()):
            yield name, tuple(filter(None, map(str.strip, extras.split(",")))), marker


def _files_of(wanted: Distribution) -> dict[str, Path]:
    if wanted.files is None:
        raise _cannot(f"it is not known which files belong to {wanted.name}")
    found = {}
    for each in wanted.files:
        name = PurePosixPath(each)
        if ".." in name.parts or name.is_absolute() or "__pycache__" in name.parts or name.suffix == ".pth":
            # Programs of the installation, and what only makes sense in it.
            continue
        if name.parts[0].endswith(".dist-info") and not _SHIPPED_FACTS.fullmatch(str(name)):
            continue
        source = Path(str(wanted.locate_file(each)))
        if source.is_file():
            found[str(name)] = source
    return found


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _cannot(why: str) -> HostError:
    return HostError(
        Reason.SELF_UPDATE_UNAVAILABLE,
        f"what runs now cannot be copied: {why}",
        "Name a release with --artifact, or install Journeyman with pip or pipx.",
    )
