"""Where settings come from: flags, environment, TOML file, defaults, in that order.

The sources are those of pydantic-settings.  They are asked one by one, as `BaseSettings` merges them before
anybody can see which one a value came from.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, InitSettingsSource, TomlConfigSettingsSource

from journeyman.errors import ConfigError
from journeyman.place import SYSTEM_ROOT as SYSTEM_ROOT_TEXT
from journeyman.place import absolute, locate
from journeyman.place import default_state_root as default_state_root_text
from journeyman.place import own_state_root as own_state_root_text
from journeyman.settings.inference import Inference
from journeyman.settings.model import Settings

SYSTEM_ROOT = Path(SYSTEM_ROOT_TEXT)
# Variables of our prefix that are no settings: which file to read, those of scripts/, of the guard, and of
# the property lists of launchd.
OTHER_VARIABLES = re.compile("JOURNEYMAN_(CONFIG|PYTHON|TEST_.*|RELEASE_NONCE|RELEASE_SHA|UNIT|UPDATER_JOB)")
# The kinds of sources, the strongest last.
RANKS = ("default", "file", "environment", "flag")
# Settings that are resolved against the folder of the file, or the working directory.
PATHS = {"state_root", "token_file", "ca_file", "certificate_file", "kubeconfig", "model_hub_token_file"}
# The same in each table of models; and those that are paths only if they look like one.
TABLE_PATHS = {"key_file", "chat_template_file"}
PERHAPS_PATHS = {"program", "model", "draft_model"}


@dataclass(frozen=True)
class Origin:
    """Where a value came from.

    Attributes:
        kind: `default`, `file`, `environment` or `flag`.
        place: the file with its line, the variable or the flag; empty for a default.
    """

    kind: Literal["default", "file", "environment", "flag"]
    place: str = ""

    def __str__(self) -> str:
        return self.place or self.kind


@dataclass(frozen=True)
class Loaded:
    """Settings, where each came from, and the file that was looked for."""

    settings: Settings
    origins: dict[str, Origin]
    config_file: Path


class Variables(EnvSettingsSource):
    """The variables of our prefix, those included that match no setting, so that they can be refused."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(Settings, case_sensitive=False)
        # An empty variable counts as unset, as unit files and shells can hardly unset one.
        self.env_vars = {
            name.lower(): value
            for name, value in environ.items()
            if value and name.startswith(self.env_prefix) and not OTHER_VARIABLES.fullmatch(name)
        }

    def __call__(self) -> dict[str, Any]:
        # The base class overlooks what matches no field.
        everything = {name[self.env_prefix_len :]: value for name, value in self.env_vars.items()}
        return everything | super().__call__()

    def origin(self, name: str) -> Origin:
        """The variable that sets it."""
        return Origin("environment", self.env_prefix + name.upper())


class File(TomlConfigSettingsSource):
    """The TOML file; one that is missing, and need not be there, holds nothing."""

    def __init__(self, path: Path, *, required: bool) -> None:
        self.path = path
        self._lines: list[str] = []
        try:
            self._lines = path.read_text(encoding="utf-8").splitlines()
            super().__init__(Settings, path)
        except FileNotFoundError as error:
            if required:
                raise ConfigError(f"there is no settings file {path}") from error
            super().__init__(Settings, None)
        except OSError as error:
            raise ConfigError(f"the settings file {path} cannot be read: {error.strerror}") from error
        except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError both.
            raise ConfigError(f"the settings file {path} is no TOML: {error}") from error
        if self._lines and not path.is_file():  # The base class overlooks a pipe.
            raise ConfigError(f"the settings file {path} is no regular file")

    def origin(self, name: str) -> Origin:
        """With the line that sets a top-level key, or opens a table of that name."""
        setting = re.compile(rf"""\s*(\[\s*){{0,2}}["']?{re.escape(name)}["']?\s*[].=]""")
        line = next((number for number, line in enumerate(self._lines, 1) if setting.match(line)), 1)
        return Origin("file", f"{self.path}:{line}")

    def origin_in_table(self, name: str, index: int, key: str) -> Origin:
        """With the line that sets a key of the table at `index` of an array, or else opens that table."""
        heads = [n for n, line in enumerate(self._lines) if re.match(rf"\s*\[\[\s*{name}\s*\]\]", line)]
        if index >= len(heads):
            return self.origin(name)
        start, rest = heads[index], self._lines[heads[index] + 1 :]
        body = itertools.takewhile(lambda line: not line.lstrip().startswith("["), rest)
        setting = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[.=]""")
        found = (number for number, line in enumerate(body, start + 1) if key and setting.match(line))
        return Origin("file", f"{self.path}:{next(found, start) + 1}")


def load_settings(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    config_file: Path | None = None,
    default_root: Path | None = None,
) -> Loaded:
    """Asks all sources and returns the settings with the origin of each.

    Args:
        flags: values of the command line by name of the setting; None means that the flag was not given.
        environ: the environment.
        config_file: a TOML file that must exist; without it `JOURNEYMAN_CONFIG`, else `config.toml` in
            the state root, which may be missing.
        default_root: the state root if no source sets one; None means this user's place on this host.

    Raises:
        ConfigError: with one line for each wrong key that names its source and what is expected.
    """
    place = locate(
        flags,
        environ,
        config_file=None if config_file is None else str(config_file),
        default_root=None if default_root is None else str(default_root),
    )
    file, variables = File(Path(place.config_file), required=place.named), Variables(environ)
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    values: dict[str, Any] = {"state_root": Path(place.default_root)}
    origins = {name: Origin("default") for name in Settings.model_fields}
    for source, folder, origin in (  # Each hides those before it.
        (file, file.path.parent, file.origin),
        (variables, Path.cwd(), variables.origin),
        (InitSettingsSource(Settings, given), Path.cwd(), _flag),
    ):
        for name, value in source().items():
            values[name] = _resolved(name, value, folder, place.home)
            origins[name] = origin(name)
    _settle_control_plane(values, origins)
    problems = []
    if not place.named and "state_root" in file():
        line = file.origin("state_root")
        problems.append(f"state_root ({line}): decides where this file is; use --state-root instead")
    return Loaded(_validated(values, origins, problems, file), origins, file.path)


def config_file_of(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Path:
    """The file that settings are read from, which need not exist; arguments as for `load_settings`."""
    return Path(locate(flags, environ).config_file)


def default_state_root(
    environ: Mapping[str, str],
    *,
    platform: str,
    uid: int,
    home: Path,
    groups: Collection[int] = (),
    system_root: Path = SYSTEM_ROOT,
) -> Path:
    """See `place.default_state_root`."""
    text = default_state_root_text(
        environ, platform=platform, uid=uid, home=str(home), groups=groups, system_root=str(system_root)
    )
    return Path(text)


def own_state_root(environ: Mapping[str, str], *, platform: str, home: Path) -> Path:
    """See `place.own_state_root`."""
    return Path(own_state_root_text(environ, platform=platform, home=str(home)))


def _resolved(name: str, value: Any, folder: Path, home: str) -> Any:
    """The value with its paths made absolute."""
    if name in PATHS:
        return _path(value, folder, home)
    if name != "inference" or not isinstance(value, list):
        return value
    return [_table(table, folder, home) if isinstance(table, dict) else table for table in value]


def _table(table: dict[str, Any], folder: Path, home: str) -> dict[str, Any]:
    def resolved(key: str, value: Any) -> Any:
        looks_like_one = "/" in str(value) and "://" not in str(value)
        is_path = key in TABLE_PATHS or (key in PERHAPS_PATHS and looks_like_one)
        found = _path(value, folder, home) if is_path else value
        # Models stay text, as they are names, too.
        return str(found) if is_path and isinstance(value, str) and key not in TABLE_PATHS else found

    return {key: resolved(key, value) for key, value in table.items()}


def _path(value: Any, folder: Path, home: str) -> Any:
    """A path below `folder`, with a leading ~ replaced; what is no path is left for validation to refuse."""
    if not isinstance(value, str | Path) or not str(value):
        return value
    return Path(absolute(str(value), str(folder), home))


def _settle_control_plane(values: dict[str, Any], origins: dict[str, Origin]) -> None:
    """Lets the stronger source say which control plane it is, where one names a server and one a kubeconfig.

    Two of one source stay, and are refused where they are used.
    """
    strength = {name: RANKS.index(origins[name].kind) for name in ("server", "kubeconfig") if name in values}
    if len(set(strength.values())) == 2:  # noqa: PLR2004  # both are there, and differ
        weaker = min(strength, key=lambda name: strength[name])
        del values[weaker]
        origins[weaker] = Origin("default")


def _flag(name: str) -> Origin:
    return Origin("flag", "--" + name.replace("_", "-"))


def _validated(
    values: dict[str, Any], origins: Mapping[str, Origin], problems: list[str], file: File
) -> Settings:
    # Sorted out here, as BaseSettings takes `_env_file` and its like for arguments of its own.
    unknown = values.keys() - Settings.model_fields.keys()
    problems += [
        f"{name} ({origins[name]}): no such setting{_nearest(name, Settings.model_fields)}"
        for name in unknown
    ]
    try:
        settings = Settings(**{name: value for name, value in values.items() if name not in unknown})
    except ValidationError as error:
        problems += [_explain(detail, origins, file) for detail in error.errors(include_url=False)]
    if problems:
        raise ConfigError("\n".join(sorted(problems)), "`journeyman config show --help` lists every setting.")
    return settings


def _nearest(name: str, known: Collection[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _explain(detail: Any, origins: Mapping[str, Origin], file: File) -> str:
    name, *inner = detail["loc"]
    origin = origins[str(name)]
    if inner and isinstance(inner[0], int) and origin.kind == "file":
        origin = file.origin_in_table(str(name), inner[0], str(inner[1]) if inner[1:] else "")
        name = f"{name}[{inner[0]}]" + "".join(f".{part}" for part in inner[1:])
    if detail["type"] == "extra_forbidden":
        return f"{name} ({origin}): no such setting{_nearest(str(inner[-1]), Inference.model_fields)}"
    text = detail["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    # The value is quoted, so that a person finds it; no setting holds a secret, files do.
    value = "" if detail["type"] == "value_error" else f", not {detail['input']!r}"
    return f"{name} ({origin}): {text}{value}"
