"""What the owner of a host lets the fleet ask for, and why something is refused."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a service that is this node's is not served."""

    SUSPENDED = "Suspended"
    STOPPED = "Stopped"
    NOT_ALLOWED = "NotAllowed"
    NAME_TAKEN = "NameTaken"
    SERVED_ELSEWHERE = "ServedElsewhere"
    MODEL_NOT_FOUND = "ModelNotFound"
    RUNTIME_UNSUPPORTED = "RuntimeUnsupported"
    FORMAT_UNSUPPORTED = "FormatUnsupported"
    SOURCE_REFUSED = "SourceRefused"
    SECRET_REFUSED = "SecretRefused"  # noqa: S105  It is the name of a reason.
    ARGUMENTS_REFUSED = "ArgumentsRefused"
    OPTION_REFUSED = "OptionRefused"


@dataclass(frozen=True)
class Rules:
    """What this host lets the fleet ask for.

    Attributes:
        node: the name of our FleetNode.
        has_metal: whether this host is one that serves models for `metal`.
        allow: patterns of `namespace/name`; without any, what is placed here is allowed, and nothing else.
        runtime: what serves a GGUF file, `native` or `llama-server`.
        extra_args: whether a service may name arguments of the runtime's program.
        model_folders: folders of this host from which a Model may name files.
        plain_http_hosts: hosts from which models may come without TLS.
        hub_url: where `hf://` leads.
    """

    node: str
    has_metal: bool = False
    allow: tuple[str, ...] = ()
    runtime: str = "native"
    extra_args: bool = False
    model_folders: tuple[str, ...] = ()
    plain_http_hosts: AbstractSet[str] = frozenset()
    hub_url: str = ""


class RefusedError(Exception):
    """A service is not served.

    Args:
        reason: one word.
        message: one line for people.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
