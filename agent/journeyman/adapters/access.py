"""Finds out how the control plane is reached: from settings, kubeconfig files, or the cluster around us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from journeyman.core.kubeconfig import Kubeconfig
from journeyman.core.server_url import checked_server_url
from journeyman.errors import ConfigError
from journeyman.model.access import Access
from journeyman.settings import Settings

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def access_of(
    settings: Settings, environ: Mapping[str, str], *, service_account: Path = SERVICE_ACCOUNT
) -> Access:
    """How the control plane is reached.

    The first of these that says something: `server`, `kubeconfig`, `$KUBECONFIG`, `~/.kube/config`, the
    ServiceAccount of the pod that we run in.

    Args:
        settings: all settings.
        environ: the environment.
        service_account: where a pod finds its ServiceAccount; tests hand in another folder.

    Raises:
        ConfigError: nothing says anything, or what is said cannot be used.
    """
    if settings.server is not None:
        if settings.kubeconfig is not None:
            raise ConfigError(
                f"server {settings.server} and kubeconfig {settings.kubeconfig} each name a control plane",
                "Leave one of them out.",
            )
        return Access(
            settings.server,
            ca_file=str(settings.ca_file or ""),
            token_file=str(settings.token_file or ""),
            certificate_file=str(settings.certificate_file or ""),
            key_file=str(settings.certificate_file or ""),
        )
    loaded = _kubeconfig(settings, environ)
    if loaded is None:
        found = _in_cluster(environ, service_account)
    else:
        insecure = settings.insecure_skip_tls_verify
        found = loaded.access(settings.context or "", may_be_insecure=insecure)
    return replace(
        found, server=checked_server_url(found.server, allow_insecure_http=settings.allow_insecure_http)
    )


def _kubeconfig(settings: Settings, environ: Mapping[str, str]) -> Kubeconfig | None:
    """The files that are named, merged; None where none is, and nobody asks for a context."""
    if settings.kubeconfig is not None:
        return _merged([settings.kubeconfig])
    if named := [Path(part) for part in environ.get("KUBECONFIG", "").split(":") if part]:
        # Of several a missing one is passed over, as kubectl does.
        there = [path for path in named if path.exists()]
        if not there:
            raise ConfigError(
                f"none of the files in $KUBECONFIG exists: {environ['KUBECONFIG']}", "Correct or unset it."
            )
        return _merged(there)
    usual = Path(environ.get("HOME") or "/nonexistent") / ".kube" / "config"
    return _merged([usual]) if usual.exists() else None


def _merged(paths: list[Path]) -> Kubeconfig:
    merged = Kubeconfig()
    for path in paths:
        merged.add(str(path.absolute()), _document(path))
    return merged


def _document(path: Path) -> object:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        found: object = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except OSError as error:
        raise ConfigError(
            f"the kubeconfig {path} cannot be read: {error.strerror}",
            "Name a readable one with --kubeconfig.",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the kubeconfig {path} is no text", "Name another file.") from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"the kubeconfig {path} is no YAML: {_where(error)}", "Check its indentation."
        ) from error
    return found


def _where(error: Exception) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _in_cluster(environ: Mapping[str, str], folder: Path) -> Access:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token = folder / "token"
    if not host or not port or not token.exists():
        raise ConfigError(
            "no control plane is set",
            "Join one with `journeyman join`, or set server (JOURNEYMAN_SERVER, --server) or kubeconfig.",
        )
    name = f"[{host}]" if ":" in host else host
    return Access(
        f"https://{name}:{port}",
        place=f"the ServiceAccount in {folder}",
        ca_file=str(folder / "ca.crt"),
        token_file=str(token),
    )
