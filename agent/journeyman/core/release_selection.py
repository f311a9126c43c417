"""Which AgentReleases would select a node of ours, and how each is told to leave it out.

Releases of the Go agent select by label alone, and an agent of ours has to carry its `agentKind`: one that
selects everything would order our nodes to run a program that is not ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from journeyman.model.agent_release import AgentRelease, SelectorOperator
from journeyman.model.fleet_node import LABEL_AGENT


def is_for_us(release: AgentRelease) -> bool:
    """Whether a release says itself that it is for agents of ours."""
    selector = release.spec.selector
    if LABEL_AGENT in selector.match_labels:
        return True
    asks = (SelectorOperator.EXISTS, SelectorOperator.IN)
    return any(each.key == LABEL_AGENT and each.operator in asks for each in selector.match_expressions)


def that_would_select(releases: Iterable[AgentRelease], labels: Mapping[str, str]) -> list[AgentRelease]:
    """The releases of others that would select a node with these labels, by name."""
    found = [each for each in releases if not is_for_us(each) and each.spec.selector.matches(dict(labels))]
    return sorted(found, key=lambda each: each.metadata.name)


def excluding_patch(release: AgentRelease) -> dict[str, Any]:
    """The merge patch after which the release leaves out every node of ours, and selects whom else it did."""
    kept = [each.to_wire() for each in release.spec.selector.match_expressions]
    without = {"key": LABEL_AGENT, "operator": SelectorOperator.DOES_NOT_EXIST.value}
    return {"spec": {"selector": {"matchExpressions": [*kept, without]}}}
