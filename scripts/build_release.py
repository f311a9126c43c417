"""Makes releases; see docs/releases.md.

A release is a deterministic tar.gz of a tree that runs from wherever it is unpacked: `bin/journeyman`, `lib/`
with our wheel and, side by side, the wheels of what it needs for each supported CPython, and `manifest.json`.
Native modules carry the Python's version in their names or use the stable ABI, so they do not meet.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.adapters.pack import pack
from journeyman_updater.adapters.release_tree import describe, finish, sha256_of
from journeyman_updater.core.fit import PRODUCT, arch_of
from journeyman_updater.errors import RequestError
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.manifest import MANIFEST_NAME, Manifest
from journeyman_updater.model.release import VersionId

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GUARD_PROTOCOL = 1  # The agent ends the guard's alarm at READY.
UNIT_PROTOCOL = 1  # `update unit` says how a service manager starts the agent.
SOURCES = ("agent", "updater", "plane", "pyproject.toml", "README.md", "LICENSE")
VERSION_FILE = Path("agent/journeyman/__init__.py")
# Of a wheel's own folder only this is shipped: the rest speaks of one wheel of several.
SHIPPED_FACTS = re.compile(r"[^/]+\.dist-info/(METADATA|entry_points\.txt|licenses/.+|LICEN[CS]E.*)")
EARLIEST_ZIP_TIME = "315532800"  # 1980-01-01, as zip files know nothing before.


def main() -> None:
    """Runs the command line; a bad argument is one line and exit code 2."""
    arguments = _parser().parse_args()
    try:
        arguments.act(arguments)
    except (RequestError, ValueError, OSError, tarfile.TarError) as error:
        print(f"release: {error}", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/release", description="Make and sign releases.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    build = verbs.add_parser("build", help="build the release of a version for this platform, and sign it")
    build.add_argument("version", type=VersionId, metavar="VERSION", help="such as 0.2.0 or 0.2.0-rc.1")
    build.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="default: dist")
    build.add_argument(
        "--url-base", default="https://releases.example", metavar="URL", help="where it will lie"
    )
    build.add_argument(
        "--wheels", type=Path, metavar="DIR", help="keep downloaded wheels here, and use those"
    )
    build.add_argument(
        "--extras", default="", metavar="NAMES", help="extras to include, such as plane,native"
    )
    _add_signing(build)
    build.set_defaults(act=_build)
    sign = verbs.add_parser("sign", help="sign a release again: a longer life, or a deliberate downgrade")
    sign.add_argument("artifact", type=Path, metavar="FILE")
    _add_signing(sign)
    sign.set_defaults(act=_sign_again)
    key = verbs.add_parser("key", help="make a key pair, FILE and FILE.pub, that stock minisign reads")
    key.add_argument("file", type=Path, metavar="FILE")
    key.set_defaults(act=_make_key)
    return parser


def _add_signing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", type=Path, metavar="FILE", help="unencrypted minisign secret key")
    parser.add_argument(
        "--sequence", type=int, metavar="N", help="default: from the version, 1.2.3 is 1002003"
    )
    parser.add_argument("--expires", type=int, default=365, metavar="DAYS", help="default: 365")


def _make_key(arguments: argparse.Namespace) -> None:
    secret: Path = arguments.file
    public = secret.with_name(secret.name + ".pub")
    key = SecretKey.generate()
    # Opened exclusively: a release key is never overwritten.
    try:
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ValueError(f"{secret} exists already") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(key.to_file())
    public.write_text(key.public.to_file())
    print(f"{secret}      keep this secret")
    print(f"{public}  give this to every host: {key.public.to_line()}")


def _build(arguments: argparse.Namespace) -> None:
    version: VersionId = arguments.version
    out: Path = arguments.out
    # What can be wrong is looked at before the work begins.
    key, wanted = _secret_key(arguments.key), _requirements(arguments.extras)
    with tempfile.TemporaryDirectory(prefix="journeyman-release-") as scratch:
        tree = Path(scratch) / "tree"
        wheels = arguments.wheels or Path(scratch) / "wheels"
        lay_out(tree, version, _wheels_of(wanted, wheels), _sequence(arguments, version))
        manifest = Manifest.from_json((tree / MANIFEST_NAME).read_bytes())
        out.mkdir(parents=True, exist_ok=True)
        artifact = out / f"{PRODUCT}-{version.canonical}-{manifest.os}-{manifest.arch}.tar.gz"
        pack(tree, artifact)
    sha256 = sha256_of(artifact)
    release = out / "agentrelease.yaml"
    url = f"{arguments.url_base.rstrip('/')}/{artifact.name}"
    release.write_text(_agent_release(manifest, url, sha256))
    print(f"{artifact}  {artifact.stat().st_size} bytes  sha256 {sha256}")
    print(release)
    if key is None:
        print("not signed, as no --key was given: hosts refuse it unless they allow unsigned releases")
    else:
        _sign(artifact, manifest, key, arguments)


def _sign_again(arguments: argparse.Namespace) -> None:
    key = _secret_key(arguments.key)
    if key is None:
        raise ValueError("sign needs --key FILE")
    with tarfile.open(arguments.artifact) as tar:
        member = tar.extractfile(MANIFEST_NAME)
        if member is None:
            raise ValueError(f"{arguments.artifact} has no {MANIFEST_NAME}")
        manifest = Manifest.from_json(member.read())
    _sign(arguments.artifact, manifest, key, arguments)


def _secret_key(path: Path | None) -> SecretKey | None:
    return None if path is None else SecretKey.parse(path.read_text())


def _sign(artifact: Path, manifest: Manifest, key: SecretKey, arguments: argparse.Namespace) -> None:
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=arguments.expires)
    binding = ReleaseBinding(
        product=manifest.product,
        os=manifest.os,
        arch=manifest.arch,
        version=manifest.version,
        sequence=_sequence(arguments, manifest.version),
        size=artifact.stat().st_size,
        sha256=sha256_of(artifact),
        expires=expires,
    )
    signature = artifact.with_name(artifact.name + ".minisig")
    signature.write_bytes(key.sign(artifact, binding.to_comment()))
    print(f"{signature}  until {expires:%Y-%m-%d}")


def _sequence(arguments: argparse.Namespace, version: VersionId) -> int:
    if arguments.sequence is not None:
        return int(arguments.sequence)
    return version.sequence()


def lay_out(tree: Path, version: VersionId, dependencies: list[Path], sequence: int) -> None:
    """Fills `tree` with everything that the release consists of."""
    library = tree / "lib"
    library.mkdir(parents=True)
    own = _own_wheel(version, tree.parent / "own")
    for wheel in [own, *dependencies]:
        _unzip(wheel, library)
    # A phone has nothing else of ours on the side that keeps the guest.
    shutil.copytree(REPOSITORY / "proot" / "termux", tree / "proot" / "termux")
    shutil.copy(REPOSITORY / "proot" / "install.sh", tree / "proot")
    building = f"{sys.version_info.major}.{sys.version_info.minor}"
    # The one that lib/ is compiled for starts fastest, so it is looked for first.
    finish(tree, [building, *(python for python in reversed(PYTHONS) if python != building)])
    manifest = Manifest(
        product=PRODUCT,
        version=version,
        os=sys.platform,
        arch=arch_of(platform.machine()),
        sequence=sequence,
        guard_protocol=GUARD_PROTOCOL,
        python_min=PYTHONS[0],
        python_max=PYTHONS[-1],
        files=describe(tree),
        unit_protocol=UNIT_PROTOCOL,
    )
    (tree / MANIFEST_NAME).write_bytes(manifest.to_json())


def _own_wheel(version: VersionId, scratch: Path) -> Path:
    """Builds our wheel from a copy of the sources that says the version."""
    source = scratch / "source"
    source.mkdir(parents=True)
    for name in SOURCES:
        path = REPOSITORY / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source / name)
    stamped = source / VERSION_FILE
    text, found = re.subn(
        r'^__version__ = ".*"$',
        f'__version__ = "{version.canonical}"',
        stamped.read_text(),
        flags=re.MULTILINE,
    )
    if found != 1:
        raise ValueError(f"{VERSION_FILE} does not say its version in one place")
    stamped.write_text(text)
    _run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch)],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": EARLIEST_ZIP_TIME},
    )
    return next(scratch.glob("*.whl"))


def _requirements(extras: str) -> list[str]:
    """What we need, with that of the extras (names with commas between them)."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted: list[str] = list(project["dependencies"])
    for extra in filter(None, extras.split(",")):
        if extra not in project["optional-dependencies"]:
            raise ValueError(f"there is no extra {extra!r}")
        wanted += project["optional-dependencies"][extra]
    return wanted


def _wheels_of(wanted: list[str], folder: Path) -> list[Path]:
    """The pinned wheels, for each Python; downloaded unless this folder is known to hold them all."""
    complete = folder / f"complete-{hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:12]}"
    if not complete.exists():
        for python in PYTHONS:
            _download(wanted, python, folder)
        complete.touch()
    return sorted(folder.glob("*.whl"))


def _download(wanted: list[str], python: str, folder: Path) -> None:
    tag = "cp" + python.replace(".", "")
    platforms = [word for name in _platforms() for word in ("--platform", name)]
    abis = [word for name in (tag, "abi3", "none") for word in ("--abi", name)]
    _run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--only-binary", ":all:", "--implementation", "cp", "--python-version", python),
            *("--constraint", str(REPOSITORY / "scripts" / "constraints.txt"), "--dest", str(folder)),
            *(*platforms, *abis, *wanted),
        ],
        cwd=REPOSITORY,
        env=dict(os.environ),
    )


def _platforms() -> list[str]:
    machine = platform.machine()
    if sys.platform == "darwin":
        return [f"macosx_{major}_0_{machine}" for major in range(14, 10, -1)]
    return [f"{name}_{machine}" for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]


def _unzip(wheel: Path, library: Path) -> None:
    """Unpacks a wheel beside the others; two that disagree about a file cannot be shipped together."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = library / name
            if name.endswith("/") or ".data/" in name:
                continue
            if ".dist-info/" in name and not SHIPPED_FACTS.fullmatch(name):
                continue
            if not path.resolve().is_relative_to(library.resolve()):
                raise ValueError(f"{wheel.name} holds {name}")
            data = archive.read(name)
            if path.exists() and path.read_bytes() != data:
                raise ValueError(f"{wheel.name} brings another {name} than an earlier wheel")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def _agent_release(manifest: Manifest, url: str, sha256: str) -> str:
    """The object that rolls it out, not approved yet.  JSON strings are YAML strings, too."""
    quote = json.dumps
    return f"""\
apiVersion: foreman.llmkube.dev/v1alpha1
kind: AgentRelease
metadata:
  name: {quote(f"{manifest.product}-{manifest.version.canonical}".lower().replace("+", "-"))}
spec:
  agentKind: foreman-agent
  version: {quote(manifest.version.spelled)}
  artifacts:
    - os: {manifest.os}
      arch: {manifest.arch}
      url: {quote(url)}
      sha256: {quote(sha256)}
  selector:
    matchLabels:
      journeyman.dev/agent: "true"
  concurrency: 1
  approved: false
  healthGate:
    minHealthySeconds: 60
    timeoutSeconds: 600
"""


def _run(command: list[str], *, cwd: Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"{' '.join(command[1:4])} failed:\n{done.stderr.strip() or done.stdout.strip()}")


if __name__ == "__main__":
    main()
