"""`[[inference]]` tables: what they may say, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journeyman.errors import ConfigError
from journeyman.settings import Inference, Loaded, Settings, load_settings
from tests.support.settings_table import inference_table

DOCS = Path(__file__).resolve().parents[3] / "docs" / "settings.md"


def load(home: Path, text: str) -> Loaded:
    (home / "config.toml").write_text(text)
    return load_settings({}, {"HOME": "/home/me"}, config_file=home / "config.toml")


def complaint(home: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(home, text)
    return caught.value.message


def test_the_short_form_is_a_table_with_the_general_options() -> None:
    """A word of `models` is served like a table that only names its model, before all tables."""
    settings = Settings(
        state_root=Path("/node"),
        models=("small",),
        inference=(Inference(model="small", name="same"),),
        model_context_tokens=2048,
        model_parallel_slots=3,
        model_threads=5,
    )
    short, table = settings.served()
    assert short.model_copy(update={"name": "same"}) == table
    assert (short.context_tokens, short.slots, short.threads) == (2048, 3, 5)


def test_a_whole_folder_is_a_model_for_mlx(tmp_path: Path) -> None:
    """Whoever names one need not name the runtime; one for files is refused before anything is fetched."""
    settings = Settings(state_root=Path("/node"), models=("hf://o/r/",))
    assert [served.runtime for served in settings.served()] == ["mlx"]
    told = complaint(tmp_path, '[[inference]]\nmodel = "hf://o/r/"\nruntime = "native"\n')
    assert "hf://o/r/ is a whole folder, which runtime native cannot serve" in told


def test_a_table_has_the_last_word_about_its_model() -> None:
    """What a table sets is not overruled by the options of all models, threads of zero included."""
    wanted = Inference(model="big", context_tokens=8192, slots=1, threads=0)
    settings = Settings(
        state_root=Path("/node"), inference=(wanted,), model_parallel_slots=4, model_threads=2
    )
    assert settings.served() == (wanted,)


def test_of_a_server_that_is_not_ours_only_what_is_told_is_known() -> None:
    """The options of our servers say nothing about the slots and the context of somebody else's."""
    external = Inference(name="theirs", runtime="external", url="http://127.0.0.1:11434/v1")
    (served,) = Settings(state_root=Path("/node"), inference=(external,)).served()
    assert (served.slots, served.context_tokens) == (0, 0)


def test_paths_of_a_table_are_relative_to_the_file(tmp_path: Path) -> None:
    """Files are found beside the settings or below the home; a program without a folder, on PATH."""
    text = (
        "[[inference]]\nmodel = 'a'\nruntime = 'llama-server'\nprogram = 'llama-server'\n"
        "chat_template_file = 'templates/a.jinja'\n"
        "[[inference]]\nmodel = './b.gguf'\nruntime = 'llama-server'\nprogram = '~/bin/llama-server'\n"
        "draft_model = 'hf://owner/repo/small.gguf'\n"
    )
    first, second = load(tmp_path, text).settings.inference
    assert first.program == Path("llama-server")
    assert first.chat_template_file == tmp_path / "templates" / "a.jinja"
    assert (first.model, second.model) == ("a", str(tmp_path / "b.gguf"))
    assert second.draft_model == "hf://owner/repo/small.gguf"
    assert second.program == Path("/home/me/bin/llama-server")


WRONG = [
    ("context_tokens = 1", "inference[1].context_tokens", 6, "greater than or equal to 128, not 1"),
    ("contxt_tokens = 1", "inference[1].contxt_tokens", 6, "no such setting; did you mean context_tokens?"),
    ("runtime = 'vllm'", "inference[1].runtime", 6, "'native', 'llama-server'"),
    ("cache_type_k = 'q2'", "inference[1].cache_type_k", 6, "'q8_0'"),
    ("start = 'sometimes'", "inference[1].start", 6, "'always' or 'on_demand'"),
    ("idle_unload_seconds = -1", "inference[1].idle_unload_seconds", 6, "greater than or equal to 0"),
    ("slots = 0", "inference[1].slots", 6, "greater than or equal to 1"),
    ("flash_attention = true", "inference[1].flash_attention", 6, "'auto', 'on' or 'off'"),
    ("port = 70000", "inference[1].port", 6, "less than or equal to 65535"),
    ("name = 'a b'", "inference[1].name", 6, "pattern"),
    ("extra_args = ['--x']", "inference[1]", 4, "runtime native has no use for extra_args"),
    ("runtime = 'mlx'\nthreads = 2", "inference[1]", 4, "runtime mlx has no use for threads"),
    (
        "name = 'x'\nruntime = 'external'\nurl = 'http://127.0.0.1:1/v1'\nstart = 'on_demand'",
        "inference[1]",
        4,
        "runtime external has no use for",
    ),
    ("url = 'http://127.0.0.1:1/v1'", "inference[1]", 4, "runtime native has no use for url"),
    ("rope_scale = 2.0", "inference[1]", 4, "say nothing without rope_scaling"),
    ("cache_type_v = 'q8_0'\nflash_attention = 'off'", "inference[1]", 4, "needs flash attention"),
]


@pytest.mark.parametrize(("line", "key", "number", "expected"), WRONG)
def test_a_wrong_value_is_told_with_its_table_its_line_and_what_would_be_right(
    tmp_path: Path, line: str, key: str, number: int, expected: str
) -> None:
    """One line names the table, the key, the place in the file, and what is expected there."""
    text = f"[[inference]]\nmodel = 'first'\n\n[[inference]]\nmodel = 'second'\n{line}\n\n[node_labels]\n"
    message = complaint(tmp_path, text)
    assert "\n" not in message
    assert message.startswith(f"{key} ({tmp_path}/config.toml:{number}): ")
    assert expected in message


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"runtime": "external", "url": "http://127.0.0.1:1/v1"}, "`name` is missing"),
        ({"runtime": "external", "name": "x"}, "`url` is missing"),
        ({"runtime": "external", "name": "x", "url": "https://127.0.0.1:1/v1"}, "is no URL like"),
        ({"runtime": "external", "name": "x", "url": "http://192.0.2.1:1/v1"}, "is not on this machine"),
        ({"runtime": "external", "name": "x", "url": "http://[::1]:1/v1", "model": "y"}, "no use for model"),
        ({}, "`model` is missing"),
    ],
)
def test_a_table_that_lacks_something_says_what(table: dict[str, Any], expected: str) -> None:
    """A server to watch needs a name and an address of this machine; every other one a model."""
    with pytest.raises(ValueError, match=expected):
        Inference(**table)


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    """Clients ask by name, so a name that is there twice is a mistake, whichever form it has."""
    message = complaint(tmp_path, "models = ['a']\n[[inference]]\nmodel = 'a'\n")
    assert "a is there twice; give one of them another `name`" in message
    assert f"({tmp_path}/config.toml:2)" in message


def test_every_option_of_a_table_is_described_and_documented() -> None:
    """The table in the docs is the one that `python -m tests.support.settings_table` prints."""
    assert all((field.description or "").endswith(".") for field in Inference.model_fields.values())
    assert inference_table() in DOCS.read_text()
