"""The services that the fleet asks this host for, and what becomes of them here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServedService:
    """One InferenceService that this host serves, or is about to.

    Attributes:
        namespace: of the InferenceService.
        name: of the InferenceService.
        uid: of that very object; another one of the same name has another uid.
        model: the name under which the proxy offers it.
        port: the one that its Service shall have.
        is_ready: whether it answers now, or as soon as somebody asks.
    """

    namespace: str
    name: str
    uid: str
    model: str
    port: int
    is_ready: bool
