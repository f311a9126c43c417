"""ModelProfile: what is peculiar to one model, added to each persona that uses it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from journeyman.model.agent import StuckLoopDetection
from journeyman.model.meta import ObjectMeta, WireModel, WireObject


class ModelProfileSpec(WireModel):
    """The peculiarities."""

    system_prompt_addendum: str = ""
    stuck_loop_detection: StuckLoopDetection | None = None
    restrict_reads_in_forcing_phase: bool | None = None


class ModelProfile(WireObject):
    """One profile.  We read its spec and never its status."""

    api_version: Literal["foreman.llmkube.dev/v1alpha1"] = "foreman.llmkube.dev/v1alpha1"
    kind: Literal["ModelProfile"] = "ModelProfile"
    metadata: ObjectMeta
    spec: ModelProfileSpec = Field(default_factory=ModelProfileSpec)
