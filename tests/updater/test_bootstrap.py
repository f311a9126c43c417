"""The first release of a state root that has none."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest

from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.bootstrap import bootstrap
from journeyman_updater.contract import StateRoot
from journeyman_updater.errors import Reason, UpdaterError
from journeyman_updater.model.journal import Step
from journeyman_updater.run import open_updater
from tests.simulator.releases import installable

KEY = SecretKey.generate()


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    return StateRoot(tmp_path / "a state root")


def run(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def refused(root: StateRoot, artifact: Path, *keys: str) -> Reason:
    with pytest.raises(UpdaterError) as caught:
        bootstrap(root, artifact, keys=keys, source="agentrelease")
    return caught.value.reason


@pytest.mark.slow
def test_a_bare_root_gets_all_that_it_needs(root: StateRoot, tmp_path: Path) -> None:
    """Release, state, pinned key and launchers; guard and updater then run from what lies there alone."""
    artifact = installable(tmp_path / "made", KEY)
    installed = bootstrap(root, artifact, keys=(KEY.public.to_file(),), source="agentrelease")
    updater = open_updater(root)
    document = updater.document()
    assert (document.status.active, document.status.sequence) == (installed.slot, 7)
    assert document.spec.source == "agentrelease"
    assert [record.step for record in updater.history()][-2:] == [Step.COMMIT, Step.COMMITTED]
    assert [path.read_text() for path in root.keys.iterdir()] == [KEY.public.to_file()]
    assert stat.S_IMODE(root.path.stat().st_mode) == 0o700

    artifact.unlink()
    assert run(installed.guard, "--root", root.path, "--", "run") == f"{installed.slot.nonce} run\n"
    assert run(installed.updater, "--root", root.path) == f"updated --root {root.path}\n"
    with subprocess.Popen(["sh", str(installed.parent)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = {process.stdout.readline() for _ in range(2)}
        process.terminate()
        assert process.wait(30) == 0
    assert said == {
        f"{installed.slot.nonce} run --state-root {root.path}\n",
        f"updated --root {root.path}\n",
    }


def test_what_is_not_trusted_is_not_installed(root: StateRoot, tmp_path: Path) -> None:
    """Without a pinned key nothing is, nor what another key has signed; the root stays without a release."""
    artifact = installable(tmp_path / "made", SecretKey.generate())
    assert refused(root, artifact) is Reason.BAD_REQUEST
    assert refused(root, artifact, KEY.public.to_line()) is Reason.BAD_SIGNATURE
    assert open_updater(root).document().status.active is None
    assert not root.parent_launcher.exists()


@pytest.mark.slow
def test_a_key_that_was_put_there_before_is_trusted(root: StateRoot, tmp_path: Path) -> None:
    """`keys/*.pub` counts like a key that is named, as `up` puts its plane's key there."""
    root.keys.mkdir(parents=True)
    (root.keys / "plane.pub").write_text(KEY.public.to_file())
    installed = bootstrap(root, installable(tmp_path / "made", KEY), keys=(), source="off")
    assert open_updater(root).document().status.active == installed.slot


@pytest.mark.slow
def test_it_can_be_done_again_until_it_is_done(root: StateRoot, tmp_path: Path) -> None:
    """After a failure the next run goes on; after a success it refuses, and changes nothing."""
    key = KEY.public.to_line()
    broken = installable(tmp_path / "broken", KEY, updater=b"import nothing_like_that")
    assert refused(root, broken, key) is Reason.EXEC_CHECK_FAILED
    assert open_updater(root).document().status.active is None

    good = installable(tmp_path / "good", KEY)
    installed = bootstrap(root, good, keys=(key,), source="off")
    before = root.state_file.read_bytes()
    assert refused(root, good, key) is Reason.BAD_REQUEST
    assert root.state_file.read_bytes() == before
    assert [path.name for path in root.versions.iterdir()] == [installed.slot.folder]


@pytest.mark.slow
def test_unsigned_ones_pass_where_that_is_allowed(root: StateRoot, tmp_path: Path) -> None:
    """With `allow_unsigned` in updater.json the version comes from the archive."""
    root.path.mkdir()
    root.updater_settings.write_text(json.dumps({"allow_unsigned": True}))
    artifact = installable(tmp_path / "made", KEY)
    artifact.with_name(artifact.name + ".minisig").unlink()
    assert bootstrap(root, artifact, keys=(), source="off").slot.version.spelled == "0.2.0"
