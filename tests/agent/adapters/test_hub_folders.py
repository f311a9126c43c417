"""Models that are folders come from a hub whole, pinned and compared, and nothing else comes with them."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.model_store import FileModelStore
from journeyman.core.gates.marks import DiskMarks
from journeyman.errors import DownloadError, HostError, ModelError, ModelFault, UsageError
from tests.simulator import release_server as faults
from tests.simulator.release_server import ReleaseServer
from tests.support.big_models import store_in
from tests.support.model_hub import COMMIT, Repository, tiny_repository, weights

SIZE = 300_000
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
NEEDED = {
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("model.safetensors.index.json", FIRST, SECOND),
}


@pytest.fixture
def server() -> Iterator[ReleaseServer]:
    with ReleaseServer() as running:
        yield running


@pytest.fixture
def repository(server: ReleaseServer) -> Repository:
    return Repository(server, "mlx-community/Tiny-4bit", tiny_repository(SIZE)).publish()


def quiet(line: str) -> None:
    pass


def store_for(server: ReleaseServer, folder: Path, **kwargs: Any) -> FileModelStore:
    return store_in(folder, hub_url=server.url(""), **kwargs)


def blobs_in(folder: Path) -> int:
    return len(list((folder / "models").glob("blobs/*")))


def test_a_folder_comes_whole_and_with_nothing_else(repository: Repository, tmp_path: Path) -> None:
    """Settings, tokenizer and weights lie side by side; no program, no pickle and no other folder comes."""
    store = store_for(repository.server, tmp_path)
    pulled = store.pull("hf://mlx-community/Tiny-4bit/", quiet)
    folder = Path(pulled.path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: repository.files[name] for name in NEEDED
    }
    assert not any(".py" in asked or ".bin" in asked for asked in repository.server.requested)
    assert (pulled.name, pulled.form, pulled.revision) == ("tiny-4bit", "safetensors", COMMIT)
    assert (pulled.architecture, pulled.context_tokens, pulled.has_chat_template) == ("llama", 2048, True)
    assert pulled.size_bytes == sum(len(repository.files[name]) for name in NEEDED)
    assert store.verify("tiny-4bit") == store.find("tiny-4bit") == pulled


def test_what_was_pulled_stays_at_its_commit(repository: Repository, tmp_path: Path) -> None:
    """The branch was resolved first, so that it may move; the same source costs no further request."""
    store = store_for(repository.server, tmp_path)
    pulled = store.pull("hf://mlx-community/Tiny-4bit/", quiet)
    asked = len(repository.server.requested)
    repository.moved_to("f" * 40, tiny_repository(SIZE, seed=1))
    assert store.obtain("hf://mlx-community/Tiny-4bit/", quiet) == pulled
    assert len(repository.server.requested) == asked
    assert all(COMMIT in path for path in repository.server.requested if "resolve" in path or "tree" in path)
    newer = store.pull(f"hf://mlx-community/Tiny-4bit@{'f' * 40}/", quiet)
    assert (newer.revision, newer.sha256 != pulled.sha256) == ("f" * 40, True)
    assert newer.name == f"tiny-4bit-{newer.sha256[:8]}"


def test_the_same_content_comes_once(repository: Repository, tmp_path: Path) -> None:
    """Of another repository only that comes which is other, whether the hub keeps it in git or in LFS."""
    store = store_for(repository.server, tmp_path)
    store.pull("hf://mlx-community/Tiny-4bit/", quiet)
    files = {**repository.files, "generation_config.json": b'{"top_k": 1}'}
    other = Repository(repository.server, "someone/fork", files).publish()
    before = repository.sent(FIRST)
    pulled = store.pull("hf://someone/fork@main/", quiet)
    assert (pulled.name, other.sent("config.json"), other.sent(FIRST)) == ("fork", 0, before)
    assert other.sent("generation_config.json") > 0
    assert blobs_in(tmp_path) == len(NEEDED) + 1


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (FIRST, {"lfs": {"oid": "0" * 64, "size": 300_081, "pointerSize": 135}}),
        ("config.json", {"oid": "0" * 40}),
    ],
)
def test_what_is_not_what_the_hub_promised_is_refused(
    path: str, told: dict[str, Any], server: ReleaseServer, tmp_path: Path
) -> None:
    """The digest of LFS and that of git are both compared, and nothing can be seen of the model."""
    files = tiny_repository(SIZE)
    size = len(files[path])
    told = {**told, "lfs": {**told["lfs"], "size": size}} if "lfs" in told else told
    Repository(server, "a/b", files, {path: told}).publish()
    store = store_for(server, tmp_path)
    with pytest.raises(ModelError, match="came damaged") as refused:
        store.pull("hf://a/b/", quiet)
    assert refused.value.fault is ModelFault.HASH_MISMATCH
    assert store.models() == []
    assert not list((tmp_path / "models").glob("sets/*"))


@pytest.mark.parametrize(
    "name",
    ["../evil.safetensors", "/etc/model.safetensors", "a/../../config.json", "..\\x.json", "a//b", "x\n"],
)
def test_a_hub_that_names_other_places_is_refused(name: str, server: ReleaseServer, tmp_path: Path) -> None:
    """A list with a name that leads elsewhere is that of no honest hub, and nothing is fetched."""
    files = {**tiny_repository(SIZE), name: weights(10)}
    Repository(server, "a/b", files).publish()
    with pytest.raises(DownloadError, match="leads elsewhere"):
        store_for(server, tmp_path).pull("hf://a/b/", quiet)
    assert blobs_in(tmp_path) == 0
    assert not [path for path in server.requested if "resolve" in path]


def test_a_long_list_comes_in_pages(server: ReleaseServer, tmp_path: Path) -> None:
    """Each page names the next one."""
    Repository(server, "a/b", tiny_repository(SIZE), page_size=3).publish()
    pulled = store_for(server, tmp_path).pull("hf://a/b/", quiet)
    assert {path.name for path in Path(pulled.path).iterdir()} == NEEDED


def test_a_list_goes_on_at_the_hub_alone(server: ReleaseServer, tmp_path: Path) -> None:
    """A page that lies elsewhere would get the token, so it is not asked for."""
    token = tmp_path / "token"
    token.write_text("hf_secret\n")
    with ReleaseServer() as elsewhere:
        repository = Repository(server, "a/b", tiny_repository(SIZE)).publish()
        away = elsewhere.url("/more")

        def answer(exchange: faults.Exchange) -> None:
            exchange.head(200, Content_Length=str(len(exchange.body)), Link=f'<{away}>; rel="next"')
            exchange.send(exchange.body)

        server.publish(f"/api/models/{repository.name}/tree/{COMMIT}", b"[]", answer)
        with pytest.raises(DownloadError, match="continues its list"):
            store_for(server, tmp_path, token_file=token).pull("hf://a/b/", quiet)
        assert elsewhere.requested == []
        assert {head["authorization"] for head in server.headers} == {"Bearer hf_secret"}


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"[]", b'{"sha": "main"}', b"{", b"[" * 100_000])
def test_what_is_no_hub_is_told(body: bytes, server: ReleaseServer, tmp_path: Path) -> None:
    """A page, a list or nonsense in place of a commit is one clear error, and is not asked for again."""
    server.publish("/api/models/a/b/revision/main", body)
    with pytest.raises(DownloadError) as refused:
        store_for(server, tmp_path).pull("hf://a/b/", quiet)
    assert refused.value.advice == "Check model_hub_url."
    assert len(server.requested) == 1


@pytest.mark.parametrize("seed", range(2))
def test_cuts_cost_no_byte_twice(seed: int, repository: Repository, tmp_path: Path) -> None:
    """Each weights file goes on where its connection died."""
    offsets = random.Random(seed).sample(range(1, SIZE), 5)
    for name in (FIRST, SECOND):
        body = repository.files[name]
        repository.server.publish(repository.where(name), body, faults.cut_at(offsets), etag=f'"{name}"')
    store_for(repository.server, tmp_path).pull("hf://mlx-community/Tiny-4bit/", quiet)
    assert repository.sent(FIRST) == repository.sent(SECOND) == len(repository.files[FIRST])


def test_a_folder_is_all_there_or_not_at_all(repository: Repository, tmp_path: Path) -> None:
    """While one file is missing there is no model; the same command brings that file alone."""
    last = max((FIRST, SECOND), key=repository.where)
    body, etag = repository.files[last], '"w"'
    broken = faults.cut_once_then(100_000, faults.status(404))
    repository.server.publish(repository.where(last), body, broken, etag=etag)
    store = store_for(repository.server, tmp_path)
    with pytest.raises(DownloadError, match="404"):
        store.pull("hf://mlx-community/Tiny-4bit/", quiet)
    assert store.models() == []
    repository.server.publish(repository.where(last), body, etag=etag)
    before = {name: repository.sent(name) for name in NEEDED - {last}}
    store.pull("hf://mlx-community/Tiny-4bit/", quiet)
    assert {name: repository.sent(name) for name in NEEDED - {last}} == before
    assert repository.sent(last) == len(body)


def test_weights_that_are_not_all_there_are_told_before_they_come(
    server: ReleaseServer, tmp_path: Path
) -> None:
    """What the index or the names promise and the list lacks is missing; no weights were fetched for that."""
    files = tiny_repository(SIZE)
    index = {"weight_map": {"a": FIRST, "b": SECOND, "c": "model-extra.safetensors"}}
    for number, wrong in enumerate(
        [
            {name: body for name, body in files.items() if name != SECOND},
            {**files, "model.safetensors.index.json": json.dumps(index).encode()},
        ]
    ):
        repository = Repository(server, f"a/{number}", wrong).publish()
        with pytest.raises(ModelError, match="lacks weights") as refused:
            store_for(server, tmp_path).pull(f"hf://a/{number}/", quiet)
        assert refused.value.fault is ModelFault.PART_MISSING
        assert repository.sent(FIRST) == 0


def test_more_than_was_told_does_not_come(server: ReleaseServer, tmp_path: Path) -> None:
    """A file that does not end where the list says it does is not written to the end of the disk."""
    repository = Repository(server, "a/b", tiny_repository(SIZE)).publish()
    server.publish(repository.where("tokenizer.json"), b" " * 1000, faults.endless)
    with pytest.raises(DownloadError, match="sends more than the 18 bytes"):
        store_for(server, tmp_path).pull("hf://a/b/", quiet)


def test_a_folder_has_to_have_room_as_a_whole(repository: Repository, tmp_path: Path) -> None:
    """All files together are compared with what the disk gate leaves, before the first of them comes."""
    huge = DiskMarks(reserve_percent=0, reserve_min_bytes=10**18, reserve_max_bytes=10**18)
    with pytest.raises(HostError, match="601 KB to come"):
        store_for(repository.server, tmp_path, disk=huge).pull("hf://mlx-community/Tiny-4bit/", quiet)
    assert not [path for path in repository.server.requested if "resolve" in path]


def test_two_who_ask_at_once_fetch_a_folder_once(repository: Repository, tmp_path: Path) -> None:
    """The second waits for each file that the first one fetches."""
    both_here = threading.Event()
    url = repository.where(FIRST)
    held = faults.held_until(both_here, faults.honest)
    repository.server.publish(url, repository.files[FIRST], held)

    def tell(line: str) -> None:
        if "waiting" in line:
            both_here.set()

    with ThreadPoolExecutor(2) as pool:
        store = store_for(repository.server, tmp_path)
        pulls = [pool.submit(store.pull, "hf://mlx-community/Tiny-4bit/", tell) for _ in range(2)]
        assert len({pull.result().path for pull in pulls}) == 1
    assert {name: repository.sent(name) for name in NEEDED} == {
        name: len(repository.files[name]) for name in NEEDED
    }


def test_a_file_that_is_whole_is_shared_at_once(server: ReleaseServer, tmp_path: Path) -> None:
    """Who needs it does not wait for the rest of the model whose fetch has brought it."""
    files = tiny_repository(SIZE)
    one = Repository(server, "a/one", files).publish()
    first, last = sorted((FIRST, SECOND), key=one.where)
    data = {name: body for name, body in files.items() if not name.endswith((".safetensors", ".index.json"))}
    Repository(server, "a/two", {**data, "model.safetensors": files[first]}).publish()
    reached, go_on = threading.Event(), threading.Event()

    def late(exchange: faults.Exchange) -> None:
        reached.set()
        go_on.wait()
        faults.honest(exchange)

    server.publish(one.where(last), files[last], late)
    with ThreadPoolExecutor(1) as pool:
        pulled = pool.submit(store_for(server, tmp_path).pull, "hf://a/one/", quiet)
        reached.wait()
        assert store_for(server, tmp_path).pull("hf://a/two/", quiet).name == "two"
        go_on.set()
        assert pulled.result().name == "one"
    assert one.sent(first) == len(files[first])


@pytest.mark.parametrize(
    "text", ["hf://a/", "hf://a/b/c/", "hf://../b/", "hf://a/.b/", "https://h/folder/", "hf://a/b@/"]
)
def test_what_is_no_folder_is_a_usage_error(text: str, tmp_path: Path) -> None:
    """It is refused before anything is asked or made."""
    with pytest.raises(UsageError):
        store_in(tmp_path).pull(text, quiet)
    assert not (tmp_path / "models").exists()


def test_a_folder_has_no_digest_of_its_own(tmp_path: Path) -> None:
    """Its commit pins it, which the message says."""
    with pytest.raises(UsageError, match="no --sha256") as refused:
        store_in(tmp_path).pull("hf://a/b/", quiet, digests=["0" * 64])
    assert "@COMMIT" in refused.value.advice
