"""What `journeyman models` does with models that are folders of this host."""

from __future__ import annotations

import json
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from journeyman.adapters.model_blobs import BlobShelf, SomebodyElseWasFasterError
from journeyman.cli import models as models_command
from journeyman.core.gates.marks import DiskMarks
from journeyman.errors import ModelFault
from journeyman.models import Models
from journeyman.settings import Inference, Settings
from tests.support.model_hub import weights
from tests.support.tiny_mlx import safetensors, write_tiny_mlx

NO_RESERVE = {"disk": {"reserve_percent": 0, "reserve_min_bytes": 0}}


def quiet(line: str) -> None:
    pass


def models_of(root: Path, *configured: str) -> Models:
    return Models(Settings(state_root=root, models=configured, gates=NO_RESERVE), {})


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of the user's, with what does not belong to the model."""
    write_tiny_mlx(tmp_path / "My Model")
    (tmp_path / "My Model" / "modeling.py").write_text("raise SystemExit")
    return tmp_path / "My Model"


def test_a_folder_is_imported_as_a_copy(own: Path, tmp_path: Path) -> None:
    """It stays when the original goes, its facts are listed, and no program comes along."""
    models = models_of(tmp_path / "root")
    taken = models.take(own, quiet, name="mine", in_place=False)
    (own / "model.safetensors").unlink()
    (listed,) = models.listing()
    assert listed == taken
    facts = listed["facts"]
    assert (facts["layers"], facts["heads"], facts["kvHeads"]) == (2, (4, 4), (2, 2))
    assert (facts["keyLength"], facts["quantisation"], facts["supportsTools"]) == (16, "F32", False)
    assert (listed["form"], listed["contextTokens"], listed["hasChatTemplate"]) == ("safetensors", 2048, True)
    names = {path.name for path in Path(listed["path"]).iterdir()}
    assert names == {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    assert [one.fault for one in models.verify([])] == [""]


def test_a_folder_is_served_from_where_it_lies(own: Path, tmp_path: Path) -> None:
    """In place nothing is copied; what changes there is another model."""
    models = models_of(tmp_path / "root")
    taken = models.take(own, quiet, name=None, in_place=True)
    assert (taken["path"], taken["name"]) == (str(own), "my-model")
    (own / "modeling.py").write_text("anything")
    assert models.listing() == [taken]
    (own / "config.json").write_text("{}")
    assert models.listing() == []
    assert [one.fault for one in models.verify(["my-model"])] == [ModelFault.HASH_MISMATCH]


def test_a_folder_is_collected_as_a_whole(own: Path, tmp_path: Path) -> None:
    """Its links and what they lead to go, but for what another model shares with it."""
    models = models_of(tmp_path / "root")
    models.take(own, quiet, name="one", in_place=False)
    (own / "model.safetensors").write_bytes(weights(1000))
    models.take(own, quiet, name="two", in_place=False)
    assert models.collect([], parts=True, dry_run=False).removed == []
    assert len(models.collect(["one"], parts=True, dry_run=False).removed) == 2
    assert [one.fault for one in models.verify([])] == [""]
    models.collect(["two"], parts=True, dry_run=False)
    assert not list((tmp_path / "root" / "models").glob("[bs]*s/*"))


def test_a_folder_that_is_being_put_together_is_not_collected(own: Path, tmp_path: Path) -> None:
    """Between its links and its name nothing refers to it, and a collector leaves it all the same."""
    models = models_of(tmp_path / "root")
    taken = models.take(own, quiet, name="mine", in_place=False)
    (tmp_path / "root" / "models" / "names" / "mine.json").unlink()
    folder = Path(taken["path"])
    shelf = BlobShelf(tmp_path / "root" / "models", DiskMarks())
    with ExitStack() as held:
        links = {link.name: link.readlink().name for link in folder.iterdir()}
        assert shelf.assemble(list(links), list(links.values()), folder.name, held) == folder
        waste = models.collect([], parts=True, dry_run=False)
        assert (waste.removed, waste.kept) == ([], [f"sets/{folder.name}"])
    assert len(models.collect([], parts=True, dry_run=False).removed) == 1 + len(links)
    assert not folder.exists()


def test_what_was_completed_after_a_look_is_not_fetched_again(tmp_path: Path) -> None:
    """Who has looked before it was there, and gets its place after that, is sent to look once more."""
    shelf = BlobShelf(tmp_path / "models", DiskMarks())

    def grow(content: bytes) -> None:
        is_here = (shelf.blobs / "abc").exists
        with shelf.growing("abc", waiting=lambda: None, is_here=is_here) as file:
            file.write(content)
            shelf.keep(file, "abc", "abc")

    grow(b"first")
    with pytest.raises(SomebodyElseWasFasterError):
        grow(b"second")
    assert (shelf.blobs / "abc").read_bytes() == b"first"
    assert list(shelf.parts.iterdir()) == []


OVERLAPPING = {
    "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
    "b": {"dtype": "U8", "shape": [8], "data_offsets": [4, 12]},
}
DAMAGES: dict[str, tuple[dict[str, bytes | None], ModelFault]] = {
    "no config": ({"config.json": None}, ModelFault.CONFIG_MISSING),
    "no weights": ({"model.safetensors": None}, ModelFault.MISSING),
    "no second shard": (
        {"model.safetensors": None, "model-00001-of-00002.safetensors": weights(8)},
        ModelFault.PART_MISSING,
    ),
    "empty": ({"model.safetensors": b""}, ModelFault.EMPTY),
    "cut header": ({"model.safetensors": weights(8)[:40]}, ModelFault.HEADER_CUT),
    "cut weights": ({"model.safetensors": weights(8)[:-1]}, ModelFault.DATA_CUT),
    "overlap": ({"model.safetensors": safetensors(dict(OVERLAPPING), bytes(12))}, ModelFault.OFFSETS_WRONG),
    "a page": ({"model.safetensors": b"<!DOCTYPE html><html>log in</html>"}, ModelFault.WEB_PAGE),
    "a page as tokenizer": ({"tokenizer.json": b"<html>log in</html>"}, ModelFault.WEB_PAGE),
    "a pointer": ({"model.safetensors": b"version https://git-lfs"}, ModelFault.NOT_SAFETENSORS),
    "config of nonsense": ({"config.json": b"{"}, ModelFault.CONFIG_MISSING),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_has_its_reason(name: str, own: Path, tmp_path: Path) -> None:
    """Neither verification nor an import takes it for a model, and both say why and what to do."""
    changes, fault = DAMAGES[name]
    for file, content in changes.items():
        (own / file).unlink(missing_ok=True)
        if content is not None:
            (own / file).write_bytes(content)
    models = models_of(tmp_path / "root")
    (verdict,) = models.verify([str(own)])
    assert (verdict.fault, bool(verdict.advice), verdict.model) == (fault, True, None)
    result = CliRunner().invoke(
        models_command.command, ["import", str(own), "--state-root", str(tmp_path / "root")]
    )
    assert getattr(result.exception, "fault", None) is fault
    assert models.listing() == []


def test_the_command_takes_a_folder(own: Path, tmp_path: Path) -> None:
    """`import` of a folder prints what `list` prints of it."""
    (tmp_path / "config.toml").write_text("[gates.disk]\nreserve_percent = 0\nreserve_min_bytes = 0\n")

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(
            models_command.command, [*arguments, "--json", "--state-root", str(tmp_path)]
        )
        assert result.exception is None, result.output
        return json.loads(result.stdout)

    taken = run("import", str(own), "--name", "mine")
    assert run("list") == [taken]


def test_the_command_says_how_to_serve_a_folder(own: Path, tmp_path: Path) -> None:
    """What it prints for people is what the settings take."""
    (tmp_path / "config.toml").write_text("[gates.disk]\nreserve_percent = 0\nreserve_min_bytes = 0\n")
    arguments = ["import", str(own), "--name", "mine", "--state-root", str(tmp_path)]
    told = CliRunner().invoke(models_command.command, arguments).stdout
    (table,) = tomllib.loads(told.partition("serve it with:\n")[2])["inference"]
    assert Inference(**table) == Inference(model="mine", runtime="mlx")


def test_the_name_of_an_older_release_is_still_a_model(own: Path, tmp_path: Path) -> None:
    """A file of a name without what came later is read with its defaults."""
    models = models_of(tmp_path / "root")
    taken = models.take(own, quiet, name="mine", in_place=False)
    path = tmp_path / "root" / "models" / "names" / "mine.json"
    told = json.loads(path.read_bytes())
    del told["revision"]
    path.write_text(json.dumps(told))
    assert models.listing() == [taken]
