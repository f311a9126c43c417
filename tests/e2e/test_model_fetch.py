"""An agent that fetches the model that its settings name: cut, killed, started again, and no byte twice."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest

from tests.simulator import release_server as faults
from tests.simulator.release_server import Exchange, ReleaseServer
from tests.support.agents import ROOMY, agent
from tests.support.big_models import big_model
from tests.support.model_hub import Repository, tiny_repository
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

NOWHERE = "http://127.0.0.1:9"
MEGABYTE, GIGABYTE = 1_000_000, 1_000_000_000
CUTS = 10
SETTINGS = {
    "short": 'models = ["{url}"]\n',
    "table": '[[inference]]\nname = "big"\nmodel = "{url}"\n',
}


@pytest.mark.parametrize(("form", "size"), [("table", 32 * MEGABYTE), ("short", GIGABYTE)])
def test_ten_cuts_and_a_killed_agent_cost_a_hundredth(
    form: str, size: int, tmp_path: Path, tiny_model: Path
) -> None:
    """Ten cuts and a `kill -9` of the agent itself cost at most 1.01 times the bytes, by the server."""
    body = big_model(tiny_model, size).body
    middle = size // 2
    offsets = random.Random(5).sample(range(1, size), CUTS)
    before = faults.cut_at([one for one in offsets if one < middle])
    after = faults.cut_at([one for one in offsets if one >= middle])
    last_before = max(one for one in offsets if one < middle)
    stalled = [faults.stall_at(middle)]

    def serve(exchange: Exchange) -> None:
        if stalled and exchange.start >= last_before:
            stalled.pop()(exchange)
        else:
            (before if stalled else after)(exchange)

    (tmp_path / "token").write_text("none")
    with ReleaseServer() as server:
        url = server.publish("/big.gguf", body, serve)
        (tmp_path / "node-a").mkdir()
        (tmp_path / "node-a" / "config.toml").write_text(SETTINGS[form].format(url=url) + ROOMY)
        with agent(tmp_path, NOWHERE, tmp_path / "token") as running:
            part = running.root.models / "parts" / f"url-{hashlib.sha256(url.encode()).hexdigest()}"
            eventually(lambda: part.exists() and part.stat().st_size == middle, within_seconds=300)
            running.kill()
            running.start()
            eventually(lambda: running.status()["models"][0]["phase"] == "ready", within_seconds=300)
            blob = running.root.models / "blobs" / hashlib.sha256(body).hexdigest()
            assert blob.stat().st_size == size
            assert running.status()["models"][0]["name"] == "big"
        assert server.sent_bytes["/big.gguf"] <= 1.01 * size
        assert len(server.requested) == CUTS + 2


def test_a_killed_agent_goes_on_with_a_folder(tmp_path: Path) -> None:
    """Of a repository what was whole stays, and the file in the middle goes on; no byte comes twice."""
    files = tiny_repository(16 * MEGABYTE)
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    (tmp_path / "token").write_text("none")
    with ReleaseServer() as server:
        repository = Repository(server, "mlx-community/tiny", files).publish()
        last = max(names, key=repository.where)
        stalled = faults.in_turn(faults.stall_at(8 * MEGABYTE), faults.honest)
        server.publish(repository.where(last), files[last], stalled, etag='"w"')
        (tmp_path / "node-a").mkdir()
        table = '[[inference]]\nruntime = "mlx"\nmodel = "hf://mlx-community/tiny/"\n'
        (tmp_path / "node-a" / "config.toml").write_text(table + ROOMY)
        options = {"model_hub_url": server.url("")}
        with agent(tmp_path, NOWHERE, tmp_path / "token", options=options) as running:
            part = running.root.models / "parts" / repository.where(last).rpartition("/")[2]
            eventually(lambda: part.exists() and part.stat().st_size == 8 * MEGABYTE, within_seconds=60)
            running.kill()
            assert not list((running.root.models / "names").glob("*"))
            running.start()
            name = running.root.models / "names" / "tiny.json"
            eventually(name.exists, within_seconds=60)
            assert json.loads(name.read_bytes())["revision"] == repository.commit
        needed = [one for one in files if server.sent_bytes.get(repository.where(one))]
        assert {*names, "config.json", "tokenizer.json"} <= {*needed}
        assert {one: repository.sent(one) for one in needed} == {one: len(files[one]) for one in needed}
