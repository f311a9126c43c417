"""Everything that is refused before anything stops, with its code, by the real updater over a real socket.

One row a case: what is published and how it is signed, and the reason.  The parts are tested beside their
modules; here each fault goes through signature, transfer, unpacking, fit and exec check in their real order.
"""

from __future__ import annotations

import base64
import gzip
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.adapters.fetch_http import HttpFetcher
from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.adapters.http_source import SourceSettings
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.http_rules import RetryPolicy
from journeyman_updater.errors import Reason
from journeyman_updater.model.release import UpdateRequest, VersionId
from journeyman_updater.model.state import Spec, StateDocument, Status
from journeyman_updater.run import compose
from journeyman_updater.settings import Settings
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.fetch import ask_for_promise, fetch
from journeyman_updater.steps.stage import is_staged, stage
from journeyman_updater.transaction import Ending, Transaction
from tests.simulator import release_server as faults
from tests.simulator.release_server import Fault, ReleaseServer, self_signed
from tests.simulator.releases import SmallRelease, bind, forge, member, sign
from tests.support.mounts import mounted, remount

pytestmark = pytest.mark.slow
KEY = SecretKey(b"release1", bytes(range(32)))
OTHER = SecretKey(b"release2", bytes(range(1, 33)))
SEQUENCE_SEEN = 5


@dataclass
class Site:
    """A publisher: its server, its key, and a folder to build in."""

    server: ReleaseServer
    folder: Path

    def publish(self, data: bytes, fault: Fault = faults.honest, **bound: Any) -> UpdateRequest:
        """Publishes and signs an artifact, with fields of the binding that differ from the truth.

        Returns:
            The request that asks for it.
        """
        artifact = self.folder / "signed"
        artifact.write_bytes(data)
        binding = replace(bind(artifact, sequence=SEQUENCE_SEEN), **bound)
        self.server.publish("/a.tar.gz.minisig", sign(artifact, KEY, binding))
        return UpdateRequest(
            VersionId("0.2.0"), self.server.publish("/a.tar.gz", data, fault), bind(artifact).sha256
        )

    def good(self, **facts: Any) -> bytes:
        """A release that is good but for those facts."""
        return replace(SmallRelease(), **facts).build(self.folder).read_bytes()

    def signed_otherwise(self, change: Callable[[bytes], bytes]) -> UpdateRequest:
        """Publishes a good release under a changed signature."""
        request = self.publish(self.good())
        good = sign(self.folder / "signed", KEY, bind(self.folder / "signed", sequence=SEQUENCE_SEEN))
        self.server.publish("/a.tar.gz.minisig", change(good))
        return request


def as_legacy(signature: bytes) -> bytes:
    lines = signature.splitlines()
    lines[1] = base64.b64encode(b"Ed" + base64.b64decode(lines[1])[2:])
    return b"\n".join(lines)


def redirected(target: str) -> Callable[[Site], UpdateRequest]:
    return lambda site: site.publish(site.good(), faults.status(302, Location=target))


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> Callable[[Site], UpdateRequest]:
    return lambda site: site.publish(forge(*members))


def release(**facts: Any) -> Callable[[Site], UpdateRequest]:
    return lambda site: site.publish(site.good(**facts))


def saying(**bound: Any) -> Callable[[Site], UpdateRequest]:
    return lambda site: site.publish(site.good(), **bound)


def served(fault: Fault) -> Callable[[Site], UpdateRequest]:
    return lambda site: site.publish(site.good(), fault)


def otherwise(change: Callable[[bytes], bytes]) -> Callable[[Site], UpdateRequest]:
    return lambda site: site.signed_otherwise(change)


def truncated(site: Site) -> UpdateRequest:
    data = site.good()
    request = site.publish(data)
    site.server.publish("/a.tar.gz", data[:-10])
    return request


def another_file(site: Site) -> UpdateRequest:
    request = site.publish(site.good())
    other = site.folder / "other"
    other.write_bytes(b"another file")
    site.server.publish("/a.tar.gz.minisig", sign(other, KEY, bind(site.folder / "signed", sequence=5)))
    return request


def by_another_key(site: Site) -> UpdateRequest:
    request = site.publish(site.good())
    site.server.publish("/a.tar.gz.minisig", sign(site.folder / "signed", OTHER))
    return request


def replaced(data: bytes) -> Callable[[Site], UpdateRequest]:
    def publish(site: Site) -> UpdateRequest:
        request = site.publish(site.good())
        site.server.publish("/a.tar.gz", data)
        return request

    return publish


def moved(**changes: Any) -> Callable[[Site], UpdateRequest]:
    return lambda site: replace(site.publish(site.good()), **changes)


def unsigned(site: Site) -> UpdateRequest:
    return replace(
        site.publish(site.good()), url=site.server.publish("/b.tar.gz", site.good(version="0.3.0"))
    )


GOOD = member("bin/journeyman", b"#!/bin/sh\n", mode=0o755)
LIAR = '#!/bin/sh\necho \'{"product": "journeyman", "version": "0.1.0"}\'\n'
TARGET = "../../../outside"
CASES: dict[str, tuple[Callable[[Site], UpdateRequest], Reason]] = {
    "redirect to http": (redirected("http://example.com/a.tar.gz"), Reason.SCHEME_DOWNGRADE),
    "redirect loop": (redirected("/a.tar.gz"), Reason.TOO_MANY_REDIRECTS),
    "HTML with 200": (replaced(b"<!DOCTYPE html><title>Log in</title>"), Reason.HTML_BODY),
    "endless body": (served(faults.endless), Reason.TOO_LARGE),
    "lying length": (served(faults.length_lie(1000)), Reason.LENGTH_MISMATCH),
    "truncated": (truncated, Reason.LENGTH_MISMATCH),
    "gzip of a gzip": (lambda site: site.publish(gzip.compress(site.good())), Reason.COMPRESSED),
    "zip": (lambda site: site.publish(b"PK\x03\x04" + bytes(600)), Reason.WRONG_FORMAT),
    "raw ELF": (lambda site: site.publish(b"\x7fELF\x02" + bytes(600)), Reason.WRONG_FORMAT),
    "wrong arch": (saying(arch="s390x"), Reason.WRONG_ARCH),
    "wrong arch inside": (release(arch="s390x"), Reason.WRONG_ARCH),
    "wrong os": (saying(os="plan9"), Reason.WRONG_OS),
    "wrong os inside": (release(os="plan9"), Reason.WRONG_OS),
    "wrong product": (saying(product="other"), Reason.WRONG_PRODUCT),
    "wrong product inside": (release(product="other"), Reason.WRONG_PRODUCT),
    "wrong Python": (release(python_min="3.13"), Reason.WRONG_PYTHON),
    "decompression bomb": (archive(member("zeros", bytes(20 * 1024**2))), Reason.DECOMPRESSION_BOMB),
    "../ in version": (
        otherwise(lambda text: text.replace(b"version=0.2.0", b"version=../0.2.0")),
        Reason.BAD_SIGNATURE,
    ),
    "../ in member": (archive(GOOD, member("../outside")), Reason.UNSAFE_PATH),
    "../ in link target": (archive(member("l", kind=tarfile.SYMTYPE, target=TARGET)), Reason.UNSAFE_LINK),
    "absolute member": (archive(member("/etc/outside")), Reason.UNSAFE_PATH),
    "device member": (archive(member("null", kind=tarfile.CHRTYPE)), Reason.UNSAFE_TYPE),
    "hard link out": (archive(member("l", kind=tarfile.LNKTYPE, target=TARGET)), Reason.UNSAFE_LINK),
    "duplicate member": (archive(GOOD, GOOD), Reason.DUPLICATE_MEMBER),
    "bad mode": (archive(member("su", mode=0o4755)), Reason.BAD_MODE),
    "no manifest": (archive(GOOD), Reason.BAD_ARCHIVE),
    "replayed older signed release": (saying(sequence=SEQUENCE_SEEN - 1), Reason.ROLLBACK_REFUSED),
    "expired signature": (saying(expires=datetime(2026, 1, 2, tzinfo=UTC)), Reason.EXPIRED),
    "wrong key": (by_another_key, Reason.BAD_SIGNATURE),
    "legacy signature": (otherwise(as_legacy), Reason.BAD_SIGNATURE),
    "tampered trusted comment": (
        otherwise(lambda text: text.replace(b"sequence=5", b"sequence=6")),
        Reason.BAD_SIGNATURE,
    ),
    "signature of another file": (another_file, Reason.BAD_SIGNATURE),
    "no signature": (unsigned, Reason.HTTP_STATUS),
    "wrong bytes": (replaced(b""), Reason.LENGTH_MISMATCH),
    "http origin": (moved(url="http://example.com/a.tar.gz"), Reason.SCHEME_DOWNGRADE),
    "wrong version signed": (moved(version=VersionId("0.3.0")), Reason.VERSION_MISMATCH),
    "wrong version inside": (release(version="0.1.0"), Reason.VERSION_MISMATCH),
    "wrong version said": (release(program=LIAR), Reason.VERSION_MISMATCH),
    "unknown executable format": (release(program="\x7fELF" + "\0" * 60), Reason.NOT_EXECUTABLE_FORMAT),
    "crash at the exec check": (release(program="#!/bin/sh\nexit 1\n"), Reason.EXEC_CHECK_FAILED),
}
REJECTING = {
    Reason.COMPRESSED, Reason.WRONG_FORMAT, Reason.DECOMPRESSION_BOMB, Reason.UNSAFE_PATH,
    Reason.UNSAFE_LINK, Reason.UNSAFE_TYPE, Reason.DUPLICATE_MEMBER, Reason.BAD_MODE, Reason.BAD_ARCHIVE,
    Reason.WRONG_PRODUCT, Reason.WRONG_OS, Reason.WRONG_ARCH, Reason.WRONG_PYTHON,
    Reason.NOT_EXECUTABLE_FORMAT, Reason.EXEC_CHECK_FAILED,
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ReleaseServer() as server:
        folder = tmp_path / "site"
        folder.mkdir()
        yield Site(server, folder)


def updater(folder: Path) -> Tools:
    """The real updater of a new state root, which retries fast."""
    folder.mkdir(exist_ok=True)
    root = StateRoot(folder)
    files, clock = RealFileSystem(), SystemClock()
    spec = Spec(keys=(KEY.public.to_line(),))
    root.state_file.write_bytes(StateDocument(spec, Status(sequence=SEQUENCE_SEEN)).to_json())
    source = SourceSettings(stall_seconds=2, retry=RetryPolicy(attempts=2, base_seconds=0.01))
    tools = compose(root, Settings(exec_check_seconds=5), lambda here, total: None)
    return replace(tools, fetcher=HttpFetcher(source, files, clock))


def refuse(tools: Tools, request: UpdateRequest, reason: Reason) -> None:
    """Applies a request that has to be refused, and looks at what is left."""
    outcome = Transaction(tools).apply(request)
    assert (outcome.ending, outcome.reason) == (Ending.REFUSED, reason), outcome
    assert "\n" not in outcome.message
    status = tools.records.load().status
    assert status.trial is None
    assert not list(tools.root.versions.glob("*")), "something of it was kept"


@pytest.mark.parametrize(("publish", "reason"), CASES.values(), ids=CASES)
def test_it_is_refused_with_its_reason(
    publish: Callable[[Site], UpdateRequest], reason: Reason, site: Site, tmp_path: Path
) -> None:
    """Each fault is found before anything stops, named by its code, and leaves nothing behind."""
    tools = updater(tmp_path / "state root")
    request = publish(site)
    refuse(tools, request, reason)
    assert not (tmp_path / "outside").exists()
    if reason is not Reason.VERSION_MISMATCH:
        assert tools.records.load().status.has_rejected(request.sha256) == (reason in REJECTING)


def test_a_good_release_passes_all_of_it(site: Site, tmp_path: Path) -> None:
    """The faults above are all that is wrong: without one, the release is staged."""
    tools = updater(tmp_path / "state root")
    request = site.publish(site.good())
    promise = ask_for_promise(tools, request)
    stage(tools, promise.slot, fetch(tools, request, promise))
    assert is_staged(tools, promise.slot)


def test_a_refused_promise_costs_no_byte_of_the_artifact(site: Site, tmp_path: Path) -> None:
    """A replay is known from its signature alone."""
    refuse(
        updater(tmp_path / "root"),
        site.publish(site.good(), sequence=SEQUENCE_SEEN - 1),
        Reason.ROLLBACK_REFUSED,
    )
    assert site.server.requested == ["/a.tar.gz.minisig"]


def test_self_signed_tls(tmp_path: Path) -> None:
    """A server whose certificate nobody has vouched for is refused."""
    with ReleaseServer(self_signed(tmp_path)) as server:
        request = Site(server, tmp_path).publish(SmallRelease().build(tmp_path).read_bytes())
        outcome = Transaction(updater(tmp_path / "root")).apply(request)
    assert outcome.reason is Reason.TLS_UNTRUSTED


HOSTS = {
    "no space": ("size=60m", "size=60m", Reason.INSUFFICIENT_DISK),
    "noexec root": ("size=200m,noexec", "noexec", Reason.NO_EXEC),
    "read-only root": ("size=200m", "ro", Reason.NOT_WRITABLE),
}


@pytest.mark.parametrize(("options", "later", "reason"), HOSTS.values(), ids=HOSTS)
def test_a_host_that_cannot_take_it_refuses(
    options: str, later: str, reason: Reason, site: Site, tmp_path: Path
) -> None:
    """What the host lacks is found before the artifact is fetched, and is no evidence against the release."""
    with mounted(tmp_path / "root", options) as folder:
        tools = updater(folder)
        remount(folder, later)
        request = site.publish(site.good())
        refuse(tools, request, reason)
        assert "/a.tar.gz" not in site.server.requested
        assert not tools.records.load().status.has_rejected(request.sha256)
