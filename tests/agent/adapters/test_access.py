"""Where the way to the control plane is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from journeyman.adapters.access import access_of
from journeyman.errors import ConfigError
from journeyman.model.access import Access
from journeyman.settings import load_settings

KUBECONFIG = """
current-context: {name}
clusters:
- name: {name}
  cluster:
    server: https://{name}.example
users:
- name: me
  user:
    token: of-{name}
contexts:
- name: {name}
  context: {{cluster: {name}, user: me}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    return tmp_path / "home"


def write(path: Path, name: str) -> Path:
    path.write_text(KUBECONFIG.format(name=name))
    return path


def found(home: Path, environ: dict[str, str] | None = None, **flags: object) -> Access:
    environ = {"HOME": str(home)} | (environ or {})
    settings = load_settings({"state_root": home / "root", **flags}, environ).settings
    return access_of(settings, environ, service_account=home / "serviceaccount")


def test_the_nearer_place_wins(home: Path, tmp_path: Path) -> None:
    """A flag wins over $KUBECONFIG, that over ~/.kube/config, and that over the pod's ServiceAccount."""
    (home / "serviceaccount").mkdir()
    (home / "serviceaccount" / "token").write_text("of-pod")
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = found(home, pod)
    assert (access.server, access.token_file) == ("https://[fd00::1]:443", f"{home}/serviceaccount/token")
    assert access.ca_file == f"{home}/serviceaccount/ca.crt"
    write(home / ".kube" / "config", "usual")
    assert found(home, pod).server == "https://usual.example"
    named = {"KUBECONFIG": str(write(tmp_path / "named", "named"))}
    assert found(home, pod | named).server == "https://named.example"
    flag = write(tmp_path / "flag", "flag")
    assert found(home, pod | named, kubeconfig=flag).server == "https://flag.example"
    assert found(home, pod | named, server="https://direct.example").server == "https://direct.example"


def test_several_files_are_merged_and_a_missing_one_is_passed_over(home: Path, tmp_path: Path) -> None:
    """$KUBECONFIG names several files; one that is missing does not matter while another is there."""
    one, two = write(tmp_path / "one", "one"), write(tmp_path / "two", "two")
    several = {"KUBECONFIG": f"{tmp_path}/missing:{one}::{two}"}
    assert found(home, several).server == "https://one.example"
    assert found(home, several, context="two").server == "https://two.example"
    with pytest.raises(ConfigError, match=r"none of the files in \$KUBECONFIG exists"):
        found(home, {"KUBECONFIG": f"{tmp_path}/missing:{tmp_path}/also-missing"})


def test_a_setting_of_a_nearer_source_names_the_control_plane(home: Path, tmp_path: Path) -> None:
    """A flag with a kubeconfig stands against a server in the file, and two of one source are refused."""
    (home / "root").mkdir()
    (home / "root" / "config.toml").write_text('server = "https://file.example"\n')
    flag = write(tmp_path / "flag", "flag")
    assert found(home).server == "https://file.example"
    assert found(home, kubeconfig=flag).server == "https://flag.example"
    (home / "root" / "config.toml").write_text('kubeconfig = "k"\n')
    assert found(home, server="https://direct.example").server == "https://direct.example"
    with pytest.raises(ConfigError, match="each name a control plane"):
        found(home, server="https://direct.example", kubeconfig=flag)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "cannot be read: No such file", id="missing"),
        pytest.param(b"", "is empty", id="empty file"),
        pytest.param(b"clusters:\n- name: a\n   cluster: {}\n", "is no YAML: line 3, column", id="indent"),
        pytest.param(b"\xff\xfe\x00", "is no text", id="binary"),
        pytest.param(b"a: !!python/object:os.system x\n", "is no YAML", id="code"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(home: Path, content: bytes | None, says: str) -> None:
    """Each such file is named, with what is wrong and where."""
    path = home / "kubeconfig"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as refused:
        found(home, kubeconfig=path)
    assert str(path) in refused.value.message
    assert refused.value.advice


def test_the_server_of_a_kubeconfig_is_checked_as_ours_is(home: Path) -> None:
    """A token does not cross a network in the clear because a kubeconfig says http."""
    path = write(home / "kubeconfig", "plain")
    path.write_text(path.read_text().replace("https:", "http:"))
    with pytest.raises(ConfigError, match="in the clear"):
        found(home, kubeconfig=path)
    assert found(home, kubeconfig=path, allow_insecure_http=True).server == "http://plain.example"


def test_nothing_at_all_is_said_with_what_to_do(home: Path) -> None:
    """Where nothing names a control plane the error names the ways to one."""
    with pytest.raises(ConfigError, match="no control plane is set") as refused:
        found(home)
    assert "journeyman join" in refused.value.advice
