"""The plane's release key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from journeyman.errors import HostError
from journeyman_plane.adapters.release_key import ensure_release_key
from journeyman_updater.adapters.minisign_keys import PublicKey, SecretKey
from tests.support.plane import running_plane


def test_it_is_made_once_and_kept_private(tmp_path: Path) -> None:
    """The first start of a plane makes the pair, later ones keep it; the secret half is its owner's."""
    with running_plane(tmp_path) as plane:
        first = (plane.data_dir / "release.key").read_text()
    with running_plane(tmp_path) as plane:
        secret, public = plane.data_dir / "release.key", plane.data_dir / "release.pub"
        assert secret.read_text() == first
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert PublicKey.parse(public.read_text()) == SecretKey.parse(first).public


def test_a_lost_public_half_is_made_anew(tmp_path: Path) -> None:
    """The public half follows from the secret one."""
    secret, public = tmp_path / "release.key", tmp_path / "release.pub"
    ensure_release_key(secret, public)
    kept = public.read_text()
    public.unlink()
    ensure_release_key(secret, public)
    assert public.read_text() == kept


def test_a_damaged_key_is_explained_and_kept(tmp_path: Path) -> None:
    """A key is never replaced behind the back of the fleet that pinned it."""
    secret = tmp_path / "release.key"
    secret.write_text("damaged")
    with pytest.raises(HostError, match="cannot be read"):
        ensure_release_key(secret, tmp_path / "release.pub")
    assert secret.read_text() == "damaged"
