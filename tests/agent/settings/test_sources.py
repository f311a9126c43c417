"""Where settings come from, and what is said about wrong ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journeyman.errors import ConfigError
from journeyman.settings import (
    Loaded,
    Settings,
    config_file_of,
    default_state_root,
    load_settings,
    own_state_root,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def load(home: Path, text: str = "", /, *, environ: dict[str, str] | None = None, **flags: object) -> Loaded:
    """Loads with `text` as the config.toml of the state root."""
    root = home / "state root"
    root.mkdir(exist_ok=True)
    (root / "config.toml").write_text(text)
    variables = {"HOME": str(home), "JOURNEYMAN_STATE_ROOT": str(root), **(environ or {})}
    return load_settings(flags, variables)


def complaint(
    home: Path, text: str = "", /, *, environ: dict[str, str] | None = None, **flags: object
) -> str:
    with pytest.raises(ConfigError) as caught:
        load(home, text, environ=environ, **flags)
    assert caught.value.exit_code == 78
    return caught.value.message


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(home: Path) -> None:
    """Each source hides those below it, and the origin says which one won."""
    text = "\ntask_poll_seconds = 1\nnamespace = 'file'\nheartbeat_interval_seconds = 20\n"
    environ = {"JOURNEYMAN_NAMESPACE": "environment", "JOURNEYMAN_HEARTBEAT_INTERVAL_SECONDS": "15"}
    loaded = load(home, text, environ=environ, heartbeat_interval_seconds="10", node_name=None)

    settings, origins = loaded.settings, loaded.origins
    assert (settings.heartbeat_interval_seconds, str(origins["heartbeat_interval_seconds"])) == (
        10,
        "--heartbeat-interval-seconds",
    )
    assert (settings.namespace, str(origins["namespace"])) == ("environment", "JOURNEYMAN_NAMESPACE")
    assert settings.task_poll_seconds == 1
    assert str(origins["task_poll_seconds"]) == f"{loaded.config_file}:2"
    assert (settings.log_level, str(origins["log_level"])) == ("info", "default")
    assert set(origins) == set(Settings.model_fields)


def test_lists_and_labels_have_a_spelling_in_each_source(home: Path) -> None:
    """A list is a TOML array, `a,b` in the environment, or a repeated flag; labels alike."""
    file = load(home, "roles = ['a', 'b']\n[node_labels]\nzone = 'attic'\n")
    environment = load(home, environ={"JOURNEYMAN_ROLES": "a, b", "JOURNEYMAN_NODE_LABELS": "zone=attic"})
    flag = load(home, roles=("a", "b"), node_labels=("zone=attic",))
    for loaded in (file, environment, flag):
        assert loaded.settings.roles == ("a", "b")
        assert loaded.settings.node_labels == {"zone": "attic"}
    assert str(file.origins["node_labels"]).endswith("config.toml:2")


def test_settings_cannot_be_changed(home: Path) -> None:
    """The object is frozen."""
    with pytest.raises(ValueError, match="frozen"):
        load(home).settings.server = "https://elsewhere"  # type: ignore[misc]


def test_an_unknown_key_is_refused_with_the_nearest_name(home: Path) -> None:
    """A typo in the file never leaves a default in force unnoticed."""
    message = complaint(home, "heartbeat_intervall_seconds = 5\n")
    assert message.startswith("heartbeat_intervall_seconds (")
    assert message.endswith("config.toml:1): no such setting; did you mean heartbeat_interval_seconds?")


def test_an_unknown_variable_is_refused_with_the_nearest_name(home: Path) -> None:
    """A typo in the environment is one, too."""
    message = complaint(home, environ={"JOURNEYMAN_SERVR": "https://plane"})
    assert message == "servr (JOURNEYMAN_SERVR): no such setting; did you mean server?"


def test_a_key_in_capitals_is_refused(home: Path) -> None:
    """A file spells a setting in one way."""
    assert complaint(home, "Namespace = 'a'\n").endswith("no such setting; did you mean namespace?")


def test_a_name_like_no_other_is_refused_without_a_guess(home: Path) -> None:
    """No nearest name is better than a far one."""
    assert complaint(home, "qqq = 1\n").endswith("no such setting")


def test_a_name_of_the_librarys_arguments_is_no_setting(home: Path) -> None:
    """What steers the library that reads settings cannot be set by them."""
    assert complaint(home, "_env_file = 'x'\n").startswith("_env_file (")


def test_variables_of_the_scripts_are_no_settings(home: Path) -> None:
    """scripts/ own JOURNEYMAN_PYTHON and JOURNEYMAN_TEST_*, and the guard what it tells of the release."""
    environ = {
        "JOURNEYMAN_PYTHON": "/usr/bin/python3",
        "JOURNEYMAN_TEST_TIER": "fast",
        "JOURNEYMAN_RELEASE_NONCE": "1f",
        "JOURNEYMAN_RELEASE_SHA": "2e",
    }
    assert load(home, environ=environ).settings.namespace == "default"


WRONG = [
    ("heartbeat_interval_seconds = 'soon'", "a valid number"),
    ("heartbeat_interval_seconds = 0", "greater than 0"),
    ("heartbeat_interval_seconds = -1", "greater than 0"),
    ("heartbeat_interval_seconds = inf", "finite"),
    ("heartbeat_interval_seconds = 90000", "less than or equal to 86400"),
    ("task_poll_seconds = nan", "finite"),
    ("heartbeat_jitter_fraction = 0.9", "less than or equal to 0.5"),
    ("max_concurrent_tasks = 1.5", "a valid integer"),
    ("model_context_tokens = 1", "greater than or equal to 128"),
    ("log_level = 'loud'", "'debug', 'info', 'warning' or 'error'"),
    ("accelerator = 'tpu'", "'auto', 'metal', 'cuda', 'vulkan' or 'none'"),
    ("allow_insecure_http = 'perhaps'", "a valid boolean"),
    ("namespace = 'No Space'", "pattern"),
    ("node_name = 'Upper'", "pattern"),
    ("roles = 5", "a valid tuple"),
    ("token_file = 5", "a valid path"),
    ("token_file = ''", "must be the path of a file"),
    ("node_labels = {zone = 'not valid!'}", "no Kubernetes label"),
    ("node_labels = 5", "a valid dictionary"),
    ("model_threads = -1", "greater than or equal to 0"),
    ("outbox_retry_max_seconds = 0.5", "not be shorter than outbox_retry_first_seconds (1)"),
    ("server = 'plane:6443'", "not of the form https://HOST[:PORT]"),
    ("server = 'http://192.0.2.1'", "in the clear"),
    ("server = 'https://a:hunter2@plane'", "holds a user name"),
    ("state_root = '/elsewhere'", "decides where this file is"),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_a_wrong_value_is_one_line_that_names_key_place_and_expectation(
    home: Path, text: str, expected: str
) -> None:
    """Whoever reads the line can mend the file without reading ours."""
    message = complaint(home, text + "\n")
    assert "\n" not in message
    assert expected in message
    assert "config.toml:1)" in message or "(default)" in message


def test_a_secret_in_the_server_url_is_not_repeated(home: Path) -> None:
    """The complaint about a password does not print it."""
    assert "hunter2" not in complaint(home, "server = 'https://a:hunter2@plane'\n")


def test_all_wrong_keys_are_named_at_once(home: Path) -> None:
    """One try shows every mistake, each with its own source."""
    message = complaint(
        home,
        "log_level = 'x'\n",
        environ={"JOURNEYMAN_TASK_POLL_SECONDS": "-1"},
        node_name="Upper",
        rolls="a",
    )
    assert [line.split(":")[0].split(" (")[0] for line in message.splitlines()] == [
        "log_level",
        "node_name",
        "rolls",
        "task_poll_seconds",
    ]


def test_an_empty_variable_counts_as_unset(home: Path) -> None:
    """`JOURNEYMAN_SERVER=` in a unit file is no server, and no mistake."""
    loaded = load(home, "namespace = 'file'\n", environ={"JOURNEYMAN_SERVER": "", "JOURNEYMAN_NAMESPACE": ""})
    assert loaded.settings.server is None
    assert loaded.settings.namespace == "file"
    default = load_settings({}, {"HOME": str(home), "JOURNEYMAN_STATE_ROOT": ""}, default_root=home / "root")
    assert default.settings.state_root == home / "root"


def test_a_file_that_is_no_toml_is_refused_with_the_line(home: Path) -> None:
    """A syntax error names file and line."""
    message = complaint(home, "namespace = 'a'\nserver = https://plane\n")
    assert "config.toml is no TOML" in message
    assert "line 2" in message


def test_a_file_that_is_no_text_is_refused(home: Path) -> None:
    """Bytes that are no UTF-8 are a mistake of the file, not a crash."""
    file = home / "bad.toml"
    file.write_bytes(b"namespace = '\xff'\n")
    with pytest.raises(ConfigError, match="is no TOML"):
        load_settings({}, {"HOME": str(home)}, config_file=file)


def test_a_folder_in_place_of_the_file_is_refused(home: Path) -> None:
    """What cannot be read is said to be unreadable."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings({}, {"HOME": str(home)}, config_file=home)


def test_a_pipe_in_place_of_the_file_is_refused(home: Path) -> None:
    """What would be overlooked is refused: nobody runs on defaults unknowingly."""
    reader, writer = os.pipe()
    os.write(writer, b"namespace = 'a'\n")
    os.close(writer)
    try:
        with pytest.raises(ConfigError, match="no regular file"):
            load_settings({}, {"HOME": str(home)}, config_file=Path(f"/dev/fd/{reader}"))
    finally:
        os.close(reader)


def test_a_named_file_must_exist(home: Path) -> None:
    """Naming a file that is not there is a mistake; having no config.toml is not."""
    with pytest.raises(ConfigError, match="there is no settings file"):
        load_settings({}, {"HOME": str(home), "JOURNEYMAN_CONFIG": str(home / "none.toml")})
    assert load_settings({}, {"HOME": str(home)}).settings.namespace == "default"


def test_paths_of_a_file_are_relative_to_it(home: Path) -> None:
    """A file and what it names can be moved together; ~ is the home."""
    loaded = load(home, "token_file = 'secrets/token'\nca_file = '~/ca.pem'\n")
    assert loaded.settings.token_file == home / "state root" / "secrets" / "token"
    assert loaded.settings.ca_file == home / "ca.pem"


def test_a_named_file_may_set_the_state_root(home: Path) -> None:
    """Only config.toml in the state root cannot say where the state root is."""
    file = home / "here.toml"
    file.write_text("state_root = 'node'\n")
    loaded = load_settings({}, {"HOME": str(home)}, config_file=file)
    assert loaded.settings.state_root == home / "node"


@pytest.mark.parametrize(
    ("environ", "platform", "uid", "expected"),
    [
        ({}, "linux", 0, "/home/a/.local/share/journeyman"),
        ({}, "linux", 1000, "/home/a/.local/share/journeyman"),
        ({"XDG_DATA_HOME": "/data"}, "linux", 1000, "/data/journeyman"),
        ({"XDG_DATA_HOME": "relative"}, "linux", 1000, "/home/a/.local/share/journeyman"),
        ({"XDG_DATA_HOME": "/data"}, "darwin", 501, "/home/a/Library/Application Support/journeyman"),
    ],
)
def test_without_a_system_install_the_state_root_is_the_users(
    tmp_path: Path, environ: dict[str, str], platform: str, uid: int, expected: str
) -> None:
    """Nothing is written outside the home, not even by root."""
    found = default_state_root(
        environ, platform=platform, uid=uid, home=Path("/home/a"), system_root=tmp_path / "none"
    )
    assert found == Path(expected)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_system_install_is_found_by_whoever_may_ask_it(tmp_path: Path, platform: str) -> None:
    """Root and the agent's user find it without naming it, its group if they have no node of their own."""
    system, home = tmp_path / "system", tmp_path / "home"
    (system / "run").mkdir(parents=True)
    owner = (system / "run").stat()
    own = own_state_root({}, platform=platform, home=home)

    def found(uid: int, *groups: int) -> Path:
        return default_state_root(
            {}, platform=platform, uid=uid, home=home, groups=groups, system_root=system
        )

    assert found(0) == own
    (system / "install.json").write_text("{}")
    assert found(0) == found(owner.st_uid) == system
    stranger = owner.st_uid + 1
    assert found(stranger) == own
    assert found(stranger, owner.st_gid) == system
    own.mkdir(parents=True)
    assert found(stranger, owner.st_gid) == own
    assert found(owner.st_uid) == system


def test_locating_the_file_reads_nothing(home: Path) -> None:
    """The file can be found even while it is broken."""
    (home / "config.toml").write_text("broken")
    found = config_file_of({"state_root": str(home)}, {"HOME": "/home/a", "JOURNEYMAN_NO_SUCH": "1"})
    assert found == home / "config.toml"
