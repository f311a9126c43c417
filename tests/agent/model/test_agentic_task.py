from __future__ import annotations

from typing import Any

import pytest

from journeyman.errors import InvalidError
from journeyman.model.agentic_task import AgenticTask, VerdictPolicy


def task(
    status: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> AgenticTask:
    return AgenticTask.from_wire(
        {
            "metadata": {"name": "fix", "namespace": "default", "annotations": annotations or {}},
            "spec": {"kind": "freeform", **spec},
            "status": status or {},
        }
    )


@pytest.mark.parametrize(
    ("phase", "verdict", "on_target"),
    [
        ("Succeeded", "GO", True),
        ("Succeeded", "GATE-PASS", True),
        ("Succeeded", "NO-GO", False),
        ("Succeeded", "INCOMPLETE", False),
        ("Succeeded", "Skipped", False),
        ("Failed", "GO", False),
        ("Running", "GO", False),
    ],
)
def test_a_task_is_on_target_when_it_succeeded_with_a_good_verdict(
    phase: str,
    verdict: str,
    on_target: bool,  # noqa: FBT001
) -> None:
    """Succeeded only says that a verdict was delivered; GO and GATE-PASS are the good ones."""
    assert task({"phase": phase, "verdict": verdict}).on_target is on_target


def test_work_that_was_done_already_is_a_no_go_with_that_outcome() -> None:
    """ALREADY-RESOLVED counts only together with NO-GO, and odd results are no proof of it."""
    extra = {"extra": {"outcome": "ALREADY-RESOLVED"}}
    assert task({"phase": "Succeeded", "verdict": "NO-GO", "result": extra}).already_resolved
    assert not task({"phase": "Succeeded", "verdict": "GO", "result": extra}).already_resolved
    assert not task({"phase": "Succeeded", "verdict": "NO-GO", "result": {"extra": "x"}}).already_resolved


@pytest.mark.parametrize(("text", "count"), [("2", 2), ("", 0), ("many", 0), ("-1", 0), ("²", 0)])
def test_claim_expiries_are_counted_in_an_annotation(text: str, count: int) -> None:
    """Anybody may write annotations, so one that is no number counts as none."""
    assert task(annotations={"foreman.llmkube.dev/claim-expiries": text}).claim_expiries == count


def test_phases_fall_into_in_flight_and_terminal() -> None:
    """A task is at most one of in flight and terminal, and Pending is neither."""
    flags = {
        phase: (task({"phase": phase}).is_in_flight, task({"phase": phase}).is_terminal)
        for phase in ("Pending", "Scheduled", "Running", "Verifying", "Succeeded", "Failed")
    }
    assert flags == {
        "Pending": (False, False),
        "Scheduled": (True, False),
        "Running": (True, False),
        "Verifying": (True, False),
        "Succeeded": (False, True),
        "Failed": (False, True),
    }


def test_a_task_is_named_as_a_nodes_current_task_names_it() -> None:
    """A reference to a task is namespace/name."""
    assert task().reference == "default/fix"


def test_odd_wire_names_are_kept() -> None:
    """commitSHA, minRAMGB and selfGO are no plain camelCase."""
    wire = task(
        {"commitSHA": "abc"}, requiredCapability={"minRAMGB": 8}, verdictPolicy={"selfGO": ["docs"]}
    ).to_wire()
    assert wire["status"] == {"commitSHA": "abc"}
    assert wire["spec"]["requiredCapability"] == {"minRAMGB": 8}
    assert wire["spec"]["verdictPolicy"] == {"selfGO": ["docs"]}
    assert [item.value for item in VerdictPolicy().self_go] == ["code-fix", "docs", "packaging", "config"]


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "chat"},
        {"payload": {"issue": 0}},
        {"timeoutSeconds": -1},
        {"requiredCapability": {"accelerator": "none"}},
    ],
    ids=["kind", "issue", "timeout", "accelerator"],
)
def test_values_outside_the_schema_are_refused(spec: dict[str, Any]) -> None:
    """A task that breaks the schema is named as invalid, not half understood."""
    with pytest.raises(InvalidError, match="spec"):
        task(**spec)
