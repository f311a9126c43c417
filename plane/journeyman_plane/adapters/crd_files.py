"""The CustomResourceDefinitions that come with the package."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml

from journeyman_plane.model.builtins import BUILT_IN
from journeyman_plane.model.resource import Registry, resources_of

# libyaml's parser is ten times as fast; PyYAML's wheels have it, a build of one's own may not.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def custom_resource_definitions() -> list[dict[str, Any]]:
    """All definitions, by file name."""
    folder = resources.files("journeyman_plane") / "crds"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda f: f.name)
    return [yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER) for file in files]  # noqa: S506


@cache
def load_registry() -> Registry:
    """Everything that the plane serves: the built-in resources, then those of the definitions."""
    return Registry((*BUILT_IN, *resources_of(custom_resource_definitions())))
