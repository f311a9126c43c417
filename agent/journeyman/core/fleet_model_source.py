"""Where a Model of the fleet may come from, which is less than what people at the host may name."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from journeyman.core.fleet_rules import Reason, RefusedError, Rules
from journeyman.core.model_source import FILE_SCHEME, HUB_SCHEME, is_source, read_source
from journeyman.errors import UsageError
from journeyman.model.inference import Model, ModelFormat


def source_of(model: Model, rules: Rules) -> str:
    """What the store is asked for.  Raises RefusedError."""
    source = model.spec.source
    if model.spec.source_secret_ref is not None:
        raise RefusedError(
            Reason.SECRET_REFUSED,
            "sourceSecretRef: no node may read Secrets; set model_hub_token_file on this host",
        )
    if source.startswith("/") or source.lower().startswith(f"{FILE_SCHEME}://"):
        return file_of(source, rules.model_folders)
    if model.spec.format is ModelFormat.MLX:
        # The operator's own spelling of a whole repository is its bare name.
        source = source if "://" in source else f"{HUB_SCHEME}://{source}"
        source = source if source.endswith("/") else f"{source}/"
    if not is_source(source):
        raise RefusedError(
            Reason.SOURCE_REFUSED, f"{source} is nothing that this host can fetch; use https:// or hf://"
        )
    _check_source(source, model.spec.format, rules)
    return source


def _check_source(source: str, form: ModelFormat, rules: Rules) -> None:
    try:
        found = read_source(source, hub_url=rules.hub_url)
    except (UsageError, ValueError) as error:
        raise RefusedError(Reason.SOURCE_REFUSED, str(error)) from error
    if (form is ModelFormat.GGUF) is not bool(found.parts):
        raise RefusedError(Reason.SOURCE_REFUSED, f"{source} is no model in the format {form.value}")
    check_plain_http(source, rules)


def check_plain_http(source: str, rules: Rules) -> None:
    """People may fetch from this machine without TLS; from elsewhere it is a way to its local services."""
    host = urlsplit(source)
    if host.scheme.lower() == "http" and host.hostname not in rules.plain_http_hosts:
        raise RefusedError(
            Reason.SOURCE_REFUSED, f"http to {host.hostname} needs model_plain_http_hosts on this host"
        )


def file_of(source: str, folders: Sequence[str]) -> str:
    """The plain path of a file below one of the folders.  Raises RefusedError."""
    path = source if source.startswith("/") else unquote(urlsplit(source).path)
    plain = posixpath.normpath(path)
    below = any(plain.startswith(f"{folder.rstrip('/')}/") for folder in folders)
    if plain != path.rstrip("/") or not below:
        raise RefusedError(
            Reason.SOURCE_REFUSED, f"{path} is not below a folder of fleet_service_model_folders"
        )
    return plain
