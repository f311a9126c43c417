"""What a trusted comment says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman_updater.errors import Reason, UntrustedError
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.release import Sha256, VersionId

COMMENT = (
    "product=journeyman os=linux arch=amd64 version=1.2.3-rc.1 sequence=7 size=1000 "
    f"sha256={'ab' * 32} expires=2027-06-30T00:00:00Z"
)
BINDING = ReleaseBinding(
    product="journeyman",
    os="linux",
    arch="amd64",
    version=VersionId("1.2.3-rc.1"),
    sequence=7,
    size=1000,
    sha256=Sha256("ab" * 32),
    expires=datetime(2027, 6, 30, tzinfo=UTC),
)


def test_a_comment_is_read_and_written() -> None:
    """The documented line and the binding are the same thing."""
    assert ReleaseBinding.from_comment(COMMENT) == BINDING
    assert BINDING.to_comment() == COMMENT


def test_order_and_unknown_fields_do_not_matter() -> None:
    """A later release may say more, in any order."""
    words = [*COMMENT.split(" "), "channel=beta", "note"]
    assert ReleaseBinding.from_comment(" ".join(reversed(words))) == BINDING


@pytest.mark.parametrize("field", [word.partition("=")[0] for word in COMMENT.split(" ")])
def test_each_field_is_needed_once(field: str) -> None:
    """A field that is missing, empty or said twice is refused."""
    words = COMMENT.split(" ")
    word = next(word for word in words if word.startswith(field + "="))
    others = [other for other in words if other != word]
    for comment in (others, [*others, field + "="], [*words, word]):
        with pytest.raises(UntrustedError) as refused:
            ReleaseBinding.from_comment(" ".join(comment))
        assert refused.value.reason is Reason.BAD_SIGNATURE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("product", "Journey/man"),
        ("os", "linux\n"),
        ("version", "../1.2.3"),
        ("version", "1.2"),
        ("sequence", "-1"),
        ("sequence", "1" * 16),
        ("size", "1e9"),
        ("sha256", "AB" * 32),
        ("sha256", "ab" * 31),
        ("expires", "2027-06-30"),
        ("expires", "2027-02-30T00:00:00Z"),
        ("expires", "2027-06-30T00:00:00+02:00"),
    ],
)
def test_a_malformed_field_is_refused(field: str, value: str) -> None:
    """Each field has one form."""
    words = [word for word in COMMENT.split(" ") if not word.startswith(field + "=")]
    with pytest.raises(UntrustedError):
        ReleaseBinding.from_comment(" ".join([*words, f"{field}={value}"]))


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    """No comment raises anything but the one error."""
    with pytest.raises(UntrustedError):
        ReleaseBinding.from_comment(text)
