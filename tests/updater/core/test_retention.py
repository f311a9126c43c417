"""What may be deleted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journeyman_updater.core.retention import deletable
from journeyman_updater.model.release import Slot, VersionId, parse_sha256
from journeyman_updater.model.state import Status

SLOTS = [Slot(VersionId(f"1.{number}.0"), parse_sha256(f"{number:x}" * 64)) for number in range(8)]
FOLDERS = [slot.folder for slot in SLOTS]
slots = st.one_of(st.none(), st.sampled_from(SLOTS))


@given(
    present=st.sets(st.sampled_from([*FOLDERS, "garbage", "9.9.9-000000000000"])),
    active=slots,
    previous=slots,
    trial=slots,
    running=st.one_of(st.none(), st.sampled_from(["", *FOLDERS])),
    in_use=st.one_of(st.none(), st.frozensets(st.sampled_from(FOLDERS))),
)
def test_nothing_that_is_needed_is_deleted(
    present: set[str],
    active: Slot | None,
    previous: Slot | None,
    trial: Slot | None,
    running: str | None,
    in_use: frozenset[str] | None,
) -> None:
    """What runs, is named or is in use stays; in doubt all stays; the rest goes."""
    status = Status(active=active, previous=previous, trial=trial)
    found = set(deletable(present, status, running=running, in_use=in_use))
    if running is None or in_use is None:
        assert not found
        return
    needed = {slot.folder for slot in status.slots()} | {running} | in_use
    assert found == present - needed
