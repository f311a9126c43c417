"""Who signed what, and for how long; with stock minisign on the other side."""

from __future__ import annotations

import base64
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman_updater.adapters.minisign import MinisignVerifier
from journeyman_updater.adapters.minisign_keys import PublicKey, SecretKey
from journeyman_updater.errors import HostError, Reason, RequestError, UntrustedError
from tests.simulator.releases import SmallRelease, bind, sign
from tests.support.debian import ensure_debian_package

REPOSITORY = Path(__file__).resolve().parents[3]
NOW = datetime(2027, 1, 1, tzinfo=UTC)
KEY = SecretKey(b"release1", bytes(range(32)))
OTHER = SecretKey(b"release2", bytes(range(1, 33)))
PINNED = (KEY.public.to_file(),)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return SmallRelease().build(tmp_path)


def legacy(signature: bytes) -> bytes:
    """The same signature, said to be of the kind that is not prehashed."""
    lines = signature.splitlines()
    lines[1] = base64.b64encode(b"Ed" + base64.b64decode(lines[1])[2:])
    return b"\n".join(lines)


def test_a_good_signature_tells_what_was_promised(artifact: Path) -> None:
    """What was signed comes back field by field, before and after the artifact is there."""
    signature = sign(artifact, KEY)
    verifier = MinisignVerifier()
    assert verifier.promise(signature, PINNED, NOW) == bind(artifact)
    assert verifier.verify(artifact, signature, PINNED, NOW) == bind(artifact)


def test_a_key_may_be_pinned_by_its_line_alone(artifact: Path) -> None:
    """The base64 line of a public key is as good as its file."""
    signature = sign(artifact, KEY)
    pinned = (KEY.public.to_line(),)
    assert MinisignVerifier().verify(artifact, signature, pinned, NOW) == bind(artifact)


def test_keys_rotate_by_pinning_two(artifact: Path) -> None:
    """While old and new key are pinned, a release signed by either is taken."""
    both = (OTHER.public.to_file(), KEY.public.to_file())
    for key in (KEY, OTHER):
        assert MinisignVerifier().verify(artifact, sign(artifact, key), both, NOW) == bind(artifact)


def forgeries(artifact: Path) -> dict[str, bytes]:
    good = sign(artifact, KEY)
    lines = good.splitlines()
    twin = SecretKey(KEY.key_id, OTHER.seed)
    elsewhere = artifact.with_name("other")
    elsewhere.write_bytes(b"another file")
    return {
        "wrong key": sign(artifact, OTHER),
        "another key under the same id": sign(artifact, twin),
        "legacy signature": legacy(good),
        "tampered trusted comment": good.replace(b"sequence=1 ", b"sequence=9 "),
        "signature of another file": sign(elsewhere, KEY, bind(artifact)),
        "comment about another file": sign(artifact, KEY, bind(elsewhere)),
        "comment without fields": KEY.sign(artifact, "timestamp:1700000000\tfile:a"),
        "a field said twice": KEY.sign(artifact, bind(artifact).to_comment() + " os=linux"),
        "impossible date": KEY.sign(artifact, bind(artifact).to_comment().replace("2040-01", "2040-13")),
        "../ in version": KEY.sign(
            artifact, bind(artifact).to_comment().replace("version=0.2.0", "version=../../0.2.0")
        ),
        "unknown kind": good.replace(lines[1][:4], b"RUXX"),
        "no base64": good.replace(lines[1], b"~" * 100),
        "cut short": b"\n".join(lines[:3]),
        "empty": b"",
        "endless": good + b"\n" * 5000,
        "no text": b"\xff\xfe" + good,
    }


FORGERIES = (
    "wrong key", "another key under the same id", "legacy signature", "tampered trusted comment",
    "signature of another file", "comment about another file", "comment without fields",
    "a field said twice", "impossible date", "../ in version", "unknown kind", "no base64", "cut short",
    "empty", "endless", "no text",
)  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused(name: str, artifact: Path) -> None:
    """What is not exactly what a pinned key signed is BadSignature, and no evidence against the release."""
    with pytest.raises(UntrustedError) as refused:
        MinisignVerifier().verify(artifact, forgeries(artifact)[name], PINNED, NOW)
    assert refused.value.reason is Reason.BAD_SIGNATURE
    assert not refused.value.rejects


def test_each_forgery_is_tried(artifact: Path) -> None:
    """The table of names above is the table of forgeries."""
    assert set(FORGERIES) == set(forgeries(artifact))


def test_an_expired_signature_blocks_the_update(artifact: Path) -> None:
    """A signature is good until the very second of its expiry, and not from then on."""
    expires = NOW + timedelta(days=1)
    signature = sign(artifact, KEY, bind(artifact, expires=expires))
    verifier = MinisignVerifier()
    assert verifier.promise(signature, PINNED, expires - timedelta(seconds=1)).expires == expires
    with pytest.raises(UntrustedError) as refused:
        verifier.verify(artifact, signature, PINNED, expires)
    assert refused.value.reason is Reason.EXPIRED
    with pytest.raises(UntrustedError) as refused:
        verifier.promise(signature, PINNED, expires)
    assert refused.value.reason is Reason.EXPIRED


def test_a_clock_at_1970_cannot_judge(artifact: Path) -> None:
    """A clock that is certainly wrong is the host's fault, and passes by itself."""
    with pytest.raises(HostError) as refused:
        MinisignVerifier().verify(artifact, sign(artifact, KEY), PINNED, datetime(1970, 1, 1, tzinfo=UTC))
    assert refused.value.reason is Reason.CLOCK_WRONG
    assert refused.value.is_transient


def test_key_files_come_back_the_same() -> None:
    """What is written as a key file is read as that key."""
    assert SecretKey.parse(KEY.to_file()) == KEY
    assert PublicKey.parse(KEY.public.to_file()) == KEY.public
    assert SecretKey.generate() != SecretKey.generate()


@pytest.mark.parametrize("text", ["", "RW", "no key at all", KEY.to_file()])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    """A text that is no public key is a bad request that names the text."""
    with pytest.raises(RequestError):
        PublicKey.parse(text)


@pytest.mark.parametrize("text", ["", "RW", KEY.public.to_file()])
def test_what_is_no_secret_key_is_refused(text: str) -> None:
    """A text that is no unencrypted secret key is a bad request."""
    with pytest.raises(RequestError):
        SecretKey.parse(text)


def stock(*arguments: str | Path) -> str:
    """Runs Debian's minisign."""
    program = ensure_debian_package("minisign")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_stock_minisign_verifies_what_we_sign(artifact: Path, tmp_path: Path) -> None:
    """Debian's minisign takes our key file and our signature, and shows our trusted comment."""
    (tmp_path / "key.pub").write_text(KEY.public.to_file())
    Path(f"{artifact}.minisig").write_bytes(sign(artifact, KEY))
    shown = stock("-V", "-H", "-p", tmp_path / "key.pub", "-m", artifact)
    assert bind(artifact).to_comment() in shown


@pytest.mark.slow
def test_we_verify_what_stock_minisign_signs(artifact: Path, tmp_path: Path) -> None:
    """A key pair and a signature of Debian's minisign are taken by us."""
    public, secret = tmp_path / "key.pub", tmp_path / "key.sec"
    stock("-G", "-W", "-p", public, "-s", secret)
    stock("-S", "-s", secret, "-m", artifact, "-t", bind(artifact).to_comment())
    signature = Path(f"{artifact}.minisig").read_bytes()
    assert MinisignVerifier().verify(artifact, signature, (public.read_text(),), NOW) == bind(artifact)
    assert SecretKey.parse(secret.read_text()).public == PublicKey.parse(public.read_text())


@pytest.mark.slow
def test_stock_minisign_signs_with_our_key(artifact: Path, tmp_path: Path) -> None:
    """Debian's minisign reads the secret key files that we write."""
    (tmp_path / "key.sec").write_text(KEY.to_file())
    stock("-S", "-W", "-s", tmp_path / "key.sec", "-m", artifact, "-t", bind(artifact).to_comment())
    signature = Path(f"{artifact}.minisig").read_bytes()
    assert MinisignVerifier().verify(artifact, signature, PINNED, NOW) == bind(artifact)


@pytest.mark.slow
def test_a_legacy_signature_of_stock_minisign_is_refused(artifact: Path, tmp_path: Path) -> None:
    """What `minisign -l` makes is refused as what it is."""
    (tmp_path / "key.sec").write_text(KEY.to_file())
    stock("-S", "-l", "-W", "-s", tmp_path / "key.sec", "-m", artifact, "-t", bind(artifact).to_comment())
    with pytest.raises(UntrustedError, match="legacy"):
        MinisignVerifier().verify(artifact, Path(f"{artifact}.minisig").read_bytes(), PINNED, NOW)


def documented(title: str) -> str:
    """The shell block of docs/releases.md that contains a text."""
    blocks = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs" / "releases.md").read_text(), re.DOTALL)
    return next(str(block) for block in blocks if title in block)


@pytest.mark.slow
def test_the_documented_commands_sign_and_verify(artifact: Path, tmp_path: Path) -> None:
    """What docs/releases.md shows by hand makes a signature that we take, and verifies it."""
    ensure_debian_package("minisign")
    folder = tmp_path / "by hand"
    folder.mkdir()
    published = folder / "journeyman-0.2.0-linux-amd64.tar.gz"
    published.write_bytes(artifact.read_bytes())
    for title in ("minisign -G", "minisign -V"):
        done = subprocess.run(
            ["sh", "-eu", "-c", documented(title)], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert '"version": "0.2.0"' in done.stdout
    signature, public = Path(f"{published}.minisig"), folder / "journeyman-release.pub"
    found = MinisignVerifier().verify(published, signature.read_bytes(), (public.read_text(),), NOW)
    assert (found.sequence, found.sha256) == (2000, bind(published).sha256)
