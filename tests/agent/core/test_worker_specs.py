"""How workers are started."""

from __future__ import annotations

import json

import pytest

from journeyman.core.completion import Completion, CompletionRequest, Trouble
from journeyman.core.server_config import ServerConfig
from journeyman.core.worker_specs import Interpreter, freeform_spec, model_server_spec

PYTHON = Interpreter.of(
    "/opt/python",
    {"PATH": "/bin", "HOME": "/home/x", "LANG": "", "AWS_SECRET": "s3cret", "PYTHONPATH": "/lib"},
)
CONFIG = ServerConfig("smol", "/m/smol.gguf", "0f", context_tokens=2048, parallel=2)
REQUEST = CompletionRequest("http://127.0.0.1:1/v1", "smol", "Be brief.", "Hi", temperature=0.0)
KEY = b"k-1234567890"


def test_workers_get_a_minimal_environment() -> None:
    """Of the agent's environment only what a program needs to run is passed on."""
    assert PYTHON.env == {"PATH": "/bin", "HOME": "/home/x", "PYTHONPATH": "/lib"}


def test_a_servers_threads_wait_without_spinning() -> None:
    """A model server shares the host with other work, so its threads sleep while they wait."""
    spec, _ = model_server_spec(CONFIG, KEY, PYTHON)
    assert spec.env == {**PYTHON.env, "OMP_WAIT_POLICY": "PASSIVE"}


def test_keys_and_prompts_are_in_files_alone() -> None:
    """Neither argv nor environment nor labels hold what others must not read."""
    for spec, files in (
        model_server_spec(CONFIG, KEY, PYTHON),
        freeform_spec(REQUEST, KEY, PYTHON, {"uid": "u1"}),
    ):
        assert files["api-key"] == KEY
        assert KEY.decode() not in spec.to_json().decode()
        assert "Be brief." not in spec.to_json().decode()


def test_a_servers_spec_does_not_depend_on_its_key() -> None:
    """An unchanged model has an unchanged spec, whatever key its server gets."""
    first, _ = model_server_spec(CONFIG, b"a", PYTHON)
    second, _ = model_server_spec(CONFIG, b"b", PYTHON)
    assert first == second
    assert ServerConfig.from_json(first.labels["config"].encode()) == CONFIG


def test_a_question_keeps_its_labels() -> None:
    """The claim comes back at adoption, and the model with it."""
    spec, files = freeform_spec(REQUEST, KEY, PYTHON, {"uid": "u1"})
    assert spec.labels == {"uid": "u1", "model": "smol"}
    assert CompletionRequest.from_json(files["request.json"]) == REQUEST


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": 2, "model": "m"}'])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    """Corrupt, foreign and partial files are a ValueError."""
    with pytest.raises(ValueError, match=r"format|without|Expecting"):
        CompletionRequest.from_json(data)


@pytest.mark.parametrize("data", [b"{}", b'{"model": "m"}', b'{"surprise": 1}'])
def test_what_is_no_configuration_is_refused(data: bytes) -> None:
    """A server is not started with half a configuration."""
    with pytest.raises(ValueError, match="no configuration"):
        ServerConfig.from_json(data)


def test_results_survive_the_disk_and_newer_writers() -> None:
    """What is written is what is read, and unknown fields are passed over."""
    result = Completion("half", "", Trouble.TRUNCATED, "why", 1, 2, 0.5, None, 1.5)
    assert Completion.from_json(result.to_json()) == result
    newer = json.dumps({**json.loads(result.to_json()), "later": 1}).encode()
    assert Completion.from_json(newer) == result


def test_only_what_is_known_is_asked_for() -> None:
    """Options that nobody set are left to the server; a temperature of zero is an option."""
    assert REQUEST.body() == {
        "model": "smol",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
    }
    plain = CompletionRequest("u", "smol", "", "Hi", max_tokens=5, seed=3).body()
    assert plain["messages"] == [{"role": "user", "content": "Hi"}]
    assert (plain["max_tokens"], plain["seed"]) == (5, 3)


def test_a_release_lets_nothing_of_the_host_into_its_workers() -> None:
    """Files of the host's site-packages run code at each start, and could change those of the release."""
    assert Interpreter.of("python3", {}, is_bare=True).argv("a.b") == ("python3", "-S", "-P", "-m", "a.b")
    assert Interpreter.of("python3", {}).argv("a.b") == ("python3", "-P", "-m", "a.b")
