"""The hub of the tests speaks the API of huggingface.co, as that hub's own library understands it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from journeyman.adapters.model_download import DownloadRules, ModelDownloader
from journeyman.adapters.model_hub import ModelHub
from journeyman.core import model_hub
from journeyman.core.model_source import read_source
from tests.simulator.release_server import ReleaseServer
from tests.support.model_hub import COMMIT, Repository, tiny_repository
from tests.support.runtime_cache import cached_runtime

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from huggingface_hub import HfApi
api = HfApi(endpoint=sys.argv[1], token=False)
commit = api.model_info(sys.argv[2], revision="main").sha
files = {one.path: [one.size, one.blob_id, one.lfs.sha256 if one.lfs else None]
         for one in api.list_repo_tree(sys.argv[2], revision=commit)}
print(json.dumps({"commit": commit, "files": files}))
"""


def test_the_library_of_the_hub_reads_the_same_list() -> None:
    """Commit, sizes and digests that it finds are those by which a model is fetched, over several pages."""
    server_program = cached_runtime("mlx")
    if not server_program:
        pytest.skip("cannot run here: no mlx, which brings huggingface_hub along")
    files = tiny_repository(1000)
    with ReleaseServer() as server:
        Repository(server, "mlx-community/tiny", files, page_size=4).publish()
        # What the environment says of a hub or a proxy is not what is asked.
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "NO_PROXY": "127.0.0.1"}
        python = str(Path(server_program).with_name("python"))
        command = [python, "-c", SCRIPT, server.url(""), "mlx-community/tiny"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        hub_url = server.url("")
        source = read_source("hf://mlx-community/tiny/", hub_url=hub_url)
        ours = ModelHub(ModelDownloader(DownloadRules(hub_url=hub_url))).files(source)
    told = json.loads(done.stdout)
    assert {*told["files"]} == {*files}
    entries = [
        {
            "type": "file",
            "path": path,
            "size": size,
            "oid": blob,
            "lfs": None if sha256 is None else {"oid": sha256, "size": size},
        }
        for path, (size, blob, sha256) in told["files"].items()
    ]
    assert ours == (told["commit"], model_hub.read_tree([entries], source, COMMIT, hub_url))
    assert (ours[0], len(ours[1])) == (COMMIT, 7)
