"""Models come over HTTP whole and compared, or with a reason; bytes are not fetched twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from journeyman.core.gates.marks import DiskMarks
from journeyman.errors import DownloadError, HostError, ModelError, ModelFault, UsageError
from tests.simulator import release_server as faults
from tests.simulator.release_server import Exchange, ReleaseServer
from tests.support.big_models import BigModel, big_model, store_in
from tests.support.mounts import mounted, remount
from tests.support.waiting import eventually

SIZE = 700_000


@pytest.fixture
def server() -> Iterator[ReleaseServer]:
    with ReleaseServer() as running:
        yield running


@pytest.fixture
def model(tiny_model: Path) -> BigModel:
    return big_model(tiny_model, SIZE)


def quiet(line: str) -> None:
    pass


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "models").glob("*/*") if path.suffix != ".json")


def test_a_model_comes_whole_and_is_found_by_name_and_source(
    server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """It lies under its digest, progress is told, and the second time costs no request."""
    url = server.publish("/Llama%20Q4.gguf", model.body)
    lines: list[str] = []
    pulled = store_in(tmp_path).pull(url, lines.append)
    assert (pulled.name, pulled.sha256, pulled.source) == ("llama-q4", model.sha256, url)
    assert Path(pulled.path).read_bytes() == model.body
    assert "Llama Q4: fetching: 100 % of 700 KB" in lines
    assert files_in(tmp_path) == [model.sha256]
    assert store_in(tmp_path).find("llama-q4") == store_in(tmp_path).find(url) == pulled
    assert store_in(tmp_path).obtain(url, quiet) == pulled
    assert server.requested == ["/Llama%20Q4.gguf"]


def test_a_hub_tells_the_digest_and_what_is_here_costs_no_byte(
    server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """The hub's digest is compared, and the same weights of another repository are not fetched."""
    weights = server.publish("/cdn/x", model.body)
    for repository in ("a/one", "b/two"):
        link = faults.linked(weights, model.sha256, SIZE)
        server.publish(f"/{repository}/resolve/main/sub/M.gguf", b"", link)
    store = store_in(tmp_path, hub_url=server.url(""))
    first = store.pull("hf://a/one/sub/M.gguf", quiet)
    second = store.pull("hf://b/two@main/sub/M.gguf", quiet, name="second")
    assert (first.name, second.name, second.path) == ("m", "second", first.path)
    assert server.sent_bytes["/cdn/x"] == SIZE


def test_a_hub_whose_weights_are_others_is_refused(
    server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """What the hub promises is what must come."""
    weights = server.publish("/cdn/x", model.body)
    server.publish("/a/b/resolve/v1.0/M.gguf", b"", faults.linked(weights, "0" * 64, SIZE))
    with pytest.raises(ModelError) as refused:
        store_in(tmp_path, hub_url=server.url("")).pull("hf://a/b@v1.0/M.gguf", quiet)
    assert refused.value.fault is ModelFault.HASH_MISMATCH
    assert files_in(tmp_path) == []


def test_the_token_goes_to_the_hub_alone(server: ReleaseServer, model: BigModel, tmp_path: Path) -> None:
    """Where the hub redirects to is another origin, and gets no token."""
    token = tmp_path / "token"
    token.write_text("hf_secret\n")
    with ReleaseServer() as elsewhere:
        weights = elsewhere.publish("/x", model.body)
        server.publish("/a/b/resolve/main/M.gguf", b"", faults.linked(weights, model.sha256, SIZE))
        store_in(tmp_path, hub_url=server.url(""), token_file=token).pull("hf://a/b/M.gguf", quiet)
        assert {head["authorization"] for head in server.headers} == {"Bearer hf_secret"}
        assert ["authorization" in head for head in elsewhere.headers] == [False]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_twelve_cuts_cost_no_byte_twice(
    seed: int, server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """Connections that die at random offsets are continued where they were."""
    offsets = random.Random(seed).sample(range(1, SIZE), 12)
    url = server.publish("/m.gguf", model.body, faults.cut_at(offsets))
    assert store_in(tmp_path).pull(url, quiet, digests=[model.sha256]).sha256 == model.sha256
    assert server.sent_bytes["/m.gguf"] <= 1.01 * SIZE
    assert len(server.requested) == 13


def test_a_server_without_ranges_begins_anew(server: ReleaseServer, model: BigModel, tmp_path: Path) -> None:
    """A 200 in place of a 206 replaces what came, and is never appended to it."""
    fault = faults.cut_once_then(300_000, faults.range_unaware)
    pulled = store_in(tmp_path).pull(server.publish("/m.gguf", model.body, fault), quiet)
    assert pulled.sha256 == model.sha256


def test_a_wrong_range_begins_anew(server: ReleaseServer, model: BigModel, tmp_path: Path) -> None:
    """A 206 for other bytes than those that were asked for is not believed."""
    fault = faults.in_turn(faults.cut_at([300_000]), faults.wrong_range, faults.honest)
    pulled = store_in(tmp_path).pull(server.publish("/m.gguf", model.body, fault), quiet)
    assert pulled.sha256 == model.sha256


@pytest.mark.parametrize("etag", ['W/"1"', ""])
def test_without_a_strong_validator_nothing_is_resumed(
    etag: str, server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """A weak validator proves nothing, so no range is asked for."""
    fault = faults.in_turn(faults.cut_at([300_000]), faults.honest)
    url = server.publish("/m.gguf", model.body, fault, etag=etag)
    assert store_in(tmp_path).pull(url, quiet).sha256 == model.sha256
    assert all("range" not in head for head in server.headers)


def test_a_file_that_changed_meanwhile_is_fetched_as_a_whole(
    server: ReleaseServer, model: BigModel, tiny_model: Path, tmp_path: Path
) -> None:
    """If-Range keeps two versions of one URL apart, also from one call to the next."""
    broken = faults.cut_once_then(300_000, faults.status(404))
    url = server.publish("/m.gguf", big_model(tiny_model, SIZE, seed=8).body, broken, etag='"old"')
    with pytest.raises(DownloadError, match="404"):
        store_in(tmp_path).pull(url, quiet)
    server.publish("/m.gguf", model.body, etag='"new"')
    assert store_in(tmp_path).pull(url, quiet).sha256 == model.sha256
    assert server.headers[-1]["if-range"] == '"old"'


def test_a_fetch_that_ended_before_the_comparison_costs_nothing(
    server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """All bytes are here and the process died: the server is asked, and none comes again."""
    broken = faults.in_turn(faults.cut_at([SIZE - 1]), faults.status(404))
    url = server.publish("/m.gguf", model.body, broken)
    with pytest.raises(DownloadError):
        store_in(tmp_path).pull(url, quiet, digests=[model.sha256])
    with (tmp_path / "models" / "parts" / model.sha256).open("ab") as part:
        part.write(model.body[-1:])
    server.publish("/m.gguf", model.body)
    store_in(tmp_path).pull(url, quiet, digests=[model.sha256])
    assert server.sent_bytes["/m.gguf"] == SIZE - 1


def test_a_blob_that_a_broken_disk_cut_is_fetched_again(
    server: ReleaseServer, model: BigModel, tiny_model: Path, tmp_path: Path
) -> None:
    """The same command heals it."""
    url = server.publish("/m.gguf", model.body)
    pulled = store_in(tmp_path).pull(url, quiet, digests=[model.sha256])
    os.truncate(pulled.path, tiny_model.stat().st_size // 2)
    assert store_in(tmp_path).pull(url, quiet, digests=[model.sha256]).sha256 == model.sha256
    assert Path(pulled.path).read_bytes() == model.body


def test_a_part_that_was_torn_costs_one_more_transfer(
    server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """What a power cut left of the last call may be wrong: the whole comes once more, and is right."""
    broken = faults.cut_once_then(300_000, faults.status(404))
    url = server.publish("/m.gguf", model.body, broken)
    with pytest.raises(DownloadError):
        store_in(tmp_path).pull(url, quiet, digests=[model.sha256])
    part = tmp_path / "models" / "parts" / model.sha256
    part.write_bytes(part.read_bytes()[:200_000] + bytes(part.stat().st_size - 200_000))
    server.publish("/m.gguf", model.body)
    assert store_in(tmp_path).pull(url, quiet, digests=[model.sha256]).sha256 == model.sha256


def test_a_wrong_digest_is_refused_and_forgotten(
    server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """What is not what was asked for is deleted, and the message has both digests."""
    url = server.publish("/m.gguf", model.body)
    with pytest.raises(ModelError, match=f"digest {model.sha256}, not {'0' * 64}") as refused:
        store_in(tmp_path).pull(url, quiet, digests=["0" * 64])
    assert (refused.value.fault, refused.value.exit_code) == (ModelFault.HASH_MISMATCH, 74)
    assert store_in(tmp_path).models() == []
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"<html>log in</html>", ModelFault.WEB_PAGE),
        (b"GGUF\3\0", ModelFault.HEADER_CUT),
        (b"PK\3\4", ModelFault.NOT_GGUF),
    ],
)
def test_what_is_no_model_is_refused(
    body: bytes, fault: ModelFault, server: ReleaseServer, tmp_path: Path
) -> None:
    """A login page, a cut file and an archive have each their reason, and nothing stays."""
    with pytest.raises(ModelError) as refused:
        store_in(tmp_path).pull(server.publish("/m.gguf", body), quiet)
    assert refused.value.fault is fault
    assert store_in(tmp_path).models() == []


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (401, 1), (503, 3), (429, 3)])
def test_a_refusal_is_told_and_repeated_where_that_may_help(
    status: int, requests: int, server: ReleaseServer, tmp_path: Path
) -> None:
    """A server that is busy is asked again, one that says no is not."""
    url = server.publish("/m.gguf", b"", faults.status(status))
    with pytest.raises(DownloadError, match=str(status)) as refused:
        store_in(tmp_path).pull(url, quiet)
    assert (refused.value.advice != "", refused.value.exit_code) == (True, 69)
    assert len(server.requested) == requests
    assert files_in(tmp_path) == []


def test_plain_http_is_refused_unasked(tmp_path: Path) -> None:
    """No byte is sent to a host that is not this one without TLS."""
    with pytest.raises(DownloadError, match="plain http"):
        store_in(tmp_path).pull("http://192.0.2.1/m.gguf", quiet)


def test_a_redirect_to_plain_http_is_refused(server: ReleaseServer, tmp_path: Path) -> None:
    """Each hop is judged before it is asked."""
    away = faults.status(302, Location="http://192.0.2.1/m.gguf")
    with pytest.raises(DownloadError, match=r"redirects to 192\.0\.2\.1 over plain http"):
        store_in(tmp_path).pull(server.publish("/m.gguf", b"", away), quiet)


@pytest.mark.parametrize("text", ["hf://only/repo", "https://h/model.safetensors", "https://[x/m.gguf"])
def test_what_is_no_source_is_a_usage_error(text: str, tmp_path: Path) -> None:
    """It is refused before anything is asked or made, and is no model to a server that wants it."""
    with pytest.raises(UsageError):
        store_in(tmp_path).pull(text, quiet)
    # Where it is no command line that names it, it ends the server of that model, and not the agent.
    with pytest.raises(ModelError):
        store_in(tmp_path).obtain(text, quiet)
    assert not (tmp_path / "models").exists()


def test_two_who_ask_at_once_fetch_once(server: ReleaseServer, model: BigModel, tmp_path: Path) -> None:
    """The second waits for the first, and finds what that has fetched, with and without a digest."""
    for number, digests in enumerate(([], [model.sha256])):
        both_here = threading.Event()
        path = f"/m{number}.gguf"
        url = server.publish(path, model.body, faults.held_until(both_here, faults.honest))

        def tell(line: str, here: threading.Event = both_here) -> None:
            if "waiting" in line:
                here.set()

        folder = tmp_path / str(number)
        with ThreadPoolExecutor(2) as pool:
            pulls = [pool.submit(store_in(folder).pull, url, tell, digests=digests) for _ in range(2)]
            assert len({pull.result().path for pull in pulls}) == 1
        assert server.sent_bytes[path] == SIZE


def test_a_model_that_was_split_comes_with_all_its_parts(
    server: ReleaseServer, tiny_model: Path, tmp_path: Path
) -> None:
    """Any part names it; its files lie side by side under the names that llama.cpp looks for."""
    parts = [big_model(tiny_model, SIZE, seed=seed) for seed in range(3)]
    names = [f"Big-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for name, part in zip(names, parts, strict=True):
        server.publish(f"/{name}", part.body)
    store = store_in(tmp_path)
    pulled = store.pull(server.url(f"/{names[1]}"), quiet, digests=[part.sha256 for part in parts])
    assert (pulled.name, pulled.size_bytes) == ("big", 3 * SIZE)
    folder = Path(pulled.path).parent
    assert [folder.joinpath(name).read_bytes() for name in names] == [part.body for part in parts]
    assert Path(pulled.path).name == names[0]
    assert store.verify("big") == store.find("big") == pulled
    (tmp_path / "models" / "blobs" / parts[2].sha256).unlink()
    assert store.find("big") is None
    with pytest.raises(ModelError) as missing:
        store.verify("big")
    assert missing.value.fault is ModelFault.PART_MISSING


def test_a_file_of_this_host_is_copied(model: BigModel, tmp_path: Path) -> None:
    """What comes by a file URL stays when the original goes."""
    own = tmp_path / "My Model.gguf"
    own.write_bytes(model.body)
    pulled = store_in(tmp_path).pull(own.as_uri(), quiet)
    own.unlink()
    assert store_in(tmp_path).find(pulled.name) == pulled
    assert Path(pulled.path).read_bytes() == model.body
    with pytest.raises(ModelError) as missing:
        store_in(tmp_path).pull((tmp_path / "other.gguf").as_uri(), quiet)
    assert missing.value.fault is ModelFault.MISSING


def test_a_name_means_one_model(
    server: ReleaseServer, model: BigModel, tiny_model: Path, tmp_path: Path
) -> None:
    """A second file of the same name gets its digest behind it, and a name that was asked for is refused."""
    other = big_model(tiny_model, SIZE, seed=9)
    store = store_in(tmp_path)
    store.pull(server.publish("/a/m.gguf", model.body), quiet)
    assert store.pull(server.publish("/b/m.gguf", other.body), quiet).name == f"m-{other.sha256[:8]}"
    with pytest.raises(ModelError) as taken:
        store.pull(server.url("/b/m.gguf"), quiet, name="m")
    assert taken.value.fault is ModelFault.NAME_TAKEN


def test_what_the_disk_gate_keeps_free_stays_free(
    server: ReleaseServer, model: BigModel, tmp_path: Path
) -> None:
    """A model that would eat into the reserve is refused with the numbers, before a byte of it came."""
    huge = DiskMarks(reserve_percent=0, reserve_min_bytes=10**18, reserve_max_bytes=10**18)
    weights = server.publish("/cdn/x", model.body)
    server.publish("/a/b/resolve/main/M.gguf", b"", faults.linked(weights, model.sha256, SIZE))
    store = store_in(tmp_path, hub_url=server.url(""), disk=huge)
    with pytest.raises(HostError, match=r"700 KB to come, .* free, 1e.06 TB of that kept free"):
        store.pull("hf://a/b/M.gguf", quiet)
    assert "/cdn/x" not in server.sent_bytes
    with pytest.raises(HostError, match="no room"):
        store.pull(server.publish("/m.gguf", model.body), quiet)
    assert store.models() == []


@pytest.mark.slow
def test_a_disk_that_is_full_is_told_and_the_fetch_goes_on_later(
    server: ReleaseServer, tiny_model: Path, tmp_path: Path
) -> None:
    """Without room nothing is named; with room it is completed, and no byte comes twice."""
    size = 8_000_000
    model = big_model(tiny_model, size)

    def of_unknown_size(exchange: Exchange) -> None:
        if exchange.start:
            faults.honest(exchange)
            return
        exchange.head(200, ETag=exchange.etag)
        exchange.send(exchange.body[:5_000_000])

    url = server.publish("/m.gguf", model.body, of_unknown_size)
    with mounted(tmp_path / "small", "size=4m") as small:
        with pytest.raises(HostError, match="No space left on device") as full:
            store_in(small).pull(url, quiet, digests=[model.sha256])
        assert "goes on where it stopped" in full.value.advice
        assert store_in(small).models() == []
        remount(small, "size=64m")
        assert store_in(small).pull(url, quiet, digests=[model.sha256]).sha256 == model.sha256
    # What was on its way when the disk was full is lost with the connection.
    assert server.sent_bytes["/m.gguf"] <= 5_000_000 + size - 4 * 1024 * 1024 + 500_000


def _pull_killed_and_pulled_again(server: ReleaseServer, model: BigModel, folder: Path, cuts: int) -> None:
    """Cuts the connection, kills the command where it waits for bytes in the middle, and runs it again."""
    size = len(model.body)
    offsets = sorted(random.Random(5).sample(range(1, size), cuts))
    middle = size // 2
    stalled, ahead = [faults.stall_at(middle)], faults.cut_at([one for one in offsets if one < middle])
    after = faults.cut_at([one for one in offsets if one >= middle])

    def serve(exchange: Exchange) -> None:
        if stalled and exchange.start >= max(one for one in offsets if one < middle):
            stalled.pop()(exchange)
        else:
            (ahead if stalled else after)(exchange)

    url = server.publish("/m.gguf", model.body, serve)
    environ = {
        **os.environ,
        "JOURNEYMAN_STATE_ROOT": str(folder),
        "JOURNEYMAN_CONFIG": str(folder / "config.toml"),
    }
    (folder / "config.toml").write_text("[gates.disk]\nreserve_percent = 0\nreserve_min_bytes = 0\n")
    command = [sys.executable, "-m", "journeyman", "models", "pull", url, "--sha256", model.sha256]
    part = folder / "models" / "parts" / model.sha256
    first = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    eventually(lambda: part.exists() and part.stat().st_size == middle, within_seconds=300)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    subprocess.run(command, env=environ, check=True, capture_output=True)
    assert (folder / "models" / "blobs" / model.sha256).read_bytes() == model.body
    assert server.sent_bytes["/m.gguf"] <= 1.01 * size
    assert len(server.requested) >= cuts + 2


@pytest.mark.slow
def test_cuts_and_a_kill_cost_a_hundredth(server: ReleaseServer, tiny_model: Path, tmp_path: Path) -> None:
    """Ten cuts and a `kill -9` of the command in the middle cost at most 1.01 times the bytes of 32 MB."""
    _pull_killed_and_pulled_again(server, big_model(tiny_model, 32_000_000), tmp_path, 10)


@pytest.mark.full
def test_cuts_and_a_kill_cost_a_hundredth_of_a_gigabyte(
    server: ReleaseServer, tiny_model: Path, tmp_path: Path
) -> None:
    """The same with 1 GB."""
    _pull_killed_and_pulled_again(server, big_model(tiny_model, 1_000_000_000), tmp_path, 10)
