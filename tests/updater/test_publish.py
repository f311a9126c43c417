"""What is judged before a release is published."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman_updater.adapters.minisign import MinisignVerifier
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.errors import Reason, UpdaterError
from journeyman_updater.publish import check_signature, examine, read, sign
from tests.simulator.releases import SPEAKING, SmallRelease

NOW = datetime(2026, 12, 1, tzinfo=UTC)
LATER = NOW + timedelta(days=30)


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        (SmallRelease(product="other"), Reason.WRONG_PRODUCT),
        (
            SmallRelease(program=SPEAKING.format(product="journeyman", version="0.1.9")),
            Reason.VERSION_MISMATCH,
        ),
        (SmallRelease(program="#!/bin/sh\nexit 3\n"), Reason.EXEC_CHECK_FAILED),
    ],
)
def test_what_each_host_would_refuse_is_refused(
    release: SmallRelease, reason: Reason, tmp_path: Path
) -> None:
    """Another product, a program that tells another version, and one that does not run."""
    with pytest.raises(UpdaterError) as caught:
        examine(release.build(tmp_path))
    assert caught.value.reason is reason


@pytest.mark.parametrize("content", [b"\x7fELF" + bytes(600), b"PK\x03\x04" + bytes(600), b""])
def test_what_is_no_archive_of_ours_is_refused(content: bytes, tmp_path: Path) -> None:
    """A bare executable, a zip, nothing at all."""
    artifact = tmp_path / "artifact"
    artifact.write_bytes(content)
    with pytest.raises(UpdaterError) as caught:
        examine(artifact)
    assert caught.value.reason is Reason.WRONG_FORMAT


def test_a_release_for_elsewhere_is_judged_without_running_it(tmp_path: Path) -> None:
    """One for another platform cannot be asked who it is, and `read` never asks."""
    silent = "#!/bin/sh\nexit 3\n"
    assert examine(SmallRelease(arch="other", program=silent).build(tmp_path / "a")).manifest.arch == "other"
    assert read(SmallRelease(program=silent).build(tmp_path / "b")).manifest.version.spelled == "0.2.0"


def test_a_signature_is_made_and_recognised(tmp_path: Path) -> None:
    """Hosts verify it; it carries the manifest's sequence unless another is named."""
    key = SecretKey.generate()
    candidate = examine(SmallRelease(sequence=5).build(tmp_path))
    signature = sign(candidate, key.to_file(), sequence=None, expires=LATER)
    binding = MinisignVerifier().verify(candidate.path, signature, (key.public.to_line(),), NOW)
    assert (binding.sequence, binding.sha256, binding.size) == (5, candidate.sha256, candidate.size)
    assert check_signature(candidate, signature, NOW) == binding
    again = sign(candidate, key.to_file(), sequence=9, expires=LATER)
    assert check_signature(candidate, again, NOW).sequence == 9


def test_a_signature_of_something_else_or_of_the_past_is_refused(tmp_path: Path) -> None:
    """What lies beside the artifact has to be about it, and still valid."""
    key = SecretKey.generate().to_file()
    candidate = examine(SmallRelease().build(tmp_path / "a"))
    other = examine(SmallRelease(filler=b"y").build(tmp_path / "b"))
    for signature, reason in (
        (sign(other, key, sequence=None, expires=LATER), Reason.BAD_SIGNATURE),
        (sign(candidate, key, sequence=None, expires=NOW), Reason.EXPIRED),
        (b"no signature", Reason.BAD_SIGNATURE),
    ):
        with pytest.raises(UpdaterError) as caught:
            check_signature(candidate, signature, NOW)
        assert caught.value.reason is reason
