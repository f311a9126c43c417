"""Label and field selectors."""

from __future__ import annotations

import pytest

from journeyman_plane.core.selectors import field_selector, label_selector
from journeyman_plane.errors import RequestError

LABELS = {"room": "attic", "journeyman.dev/agent": "true"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("room=attic", True),
        ("room==attic", True),
        ("room = attic", True),
        ("room=cellar", False),
        ("room!=cellar", True),
        ("room!=attic", False),
        ("missing!=x", True),
        ("missing=", False),
        ("room", True),
        ("!room", False),
        ("!missing", True),
        ("room in (attic, cellar)", True),
        ("room in (cellar)", False),
        ("missing in (x)", False),
        ("room notin (cellar,garden)", True),
        ("room notin (attic)", False),
        ("missing notin (x)", True),
        ("journeyman.dev/agent=true", True),
        ("room in (attic,cellar),journeyman.dev/agent", True),
        ("room in (attic,cellar),journeyman.dev/agent=false", False),
    ],
)
def test_label_selectors(selector: str, matches: bool) -> None:  # noqa: FBT001
    """Equality, sets and existence mean what Kubernetes means by them, also for labels that are missing."""
    assert label_selector(selector)(LABELS) is matches


@pytest.mark.parametrize("selector", ["room in attic", "=x", "room=a b", "a,,b", "room>3", "(", "room in (a"])
def test_what_is_no_label_selector(selector: str) -> None:
    """A selector that cannot be read is a BadRequest, never a selection of everything."""
    with pytest.raises(RequestError) as caught:
        label_selector(selector)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("metadata.name=desk", True),
        ("metadata.name!=desk", False),
        ("metadata.namespace=", True),
        ("type==Warning,metadata.name=desk", True),
        ("type=Normal", False),
    ],
)
def test_field_selectors(selector: str, matches: bool) -> None:  # noqa: FBT001
    """Fields compare as text, and a missing field is empty."""
    select = field_selector(selector, frozenset({"type"}))
    assert select({"metadata": {"name": "desk"}, "type": "Warning"}) is matches


@pytest.mark.parametrize("selector", ["spec.x=1", "metadata.name", "=x"])
def test_fields_that_cannot_be_selected_by(selector: str) -> None:
    """Any other field is a BadRequest."""
    with pytest.raises(RequestError, match="field label not supported"):
        field_selector(selector, frozenset())
