"""How much RAM for blocks memory pressure takes away, and gives back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.reconcile.pressure import PATIENCE_S, Pressure, press

SIZES = st.integers(0, 1_000)
ROOMS = st.none() | SIZES


def _press(before: Pressure, *, taken: int, held: int, now: float = 0.0) -> Pressure:
    return press(before, taken=taken, held=held, limit=100, wanted=50, now=now)


@pytest.mark.parametrize(
    ("before", "taken", "held", "after"),
    [
        (None, 90, 40, None),  # within the limit
        (None, 110, 40, 30),  # 10 above it: 30 of the 40 that are held may stay
        (30, 105, 30, 25),  # not enough yet
        (30, 105, 40, 30),  # the order was not carried out yet: it stands
        (None, 200, 40, 0),  # nothing may stay
        (20, 97, 20, 20),  # just below the limit nothing swings back
        (20, 85, 20, 30),  # 10 below the slack: 10 come back
        (30, 85, 20, 30),  # the same 10, which are not used yet
        (20, 60, 20, None),  # all that is wanted fits
    ],
)
def test_blocks_make_room_and_come_back(
    before: int | None, taken: int, held: int, after: int | None
) -> None:
    """Above the limit what is held shrinks by the excess; well below it comes back by the rest."""
    assert _press(Pressure(room_bytes=before), taken=taken, held=held).room_bytes == after


@given(before=ROOMS, taken=SIZES, limit=SIZES, wanted=SIZES, held=SIZES)
def test_blocks_that_do_as_told_keep_within_the_limit(
    before: int | None, taken: int, limit: int, wanted: int, held: int
) -> None:
    """With blocks at the size they are then allowed, all fits, if blocks alone can bring that."""
    after = press(
        Pressure(room_bytes=before), taken=taken, held=held, limit=limit, wanted=wanted, now=0.0
    )
    if taken > limit:
        assert after.room_bytes is not None
        assert taken - held + after.room_bytes <= max(limit, taken - held)
    elif before is None:
        assert after.room_bytes is None
    elif after.room_bytes is not None:
        assert after.room_bytes >= before


def test_blocks_that_fill_their_room_again_do_not_swing() -> None:
    """From full to full: the room stays what it was at first."""
    pressure = _press(Pressure(), taken=120, held=50)
    rooms = []
    for held in (30, 10, 20, 35, 35):
        pressure = _press(pressure, taken=60 + held, held=held)
        rooms.append(pressure.room_bytes)
    assert rooms == [35] * 5


def test_blocks_have_some_time_to_go() -> None:
    """Engines count on them as long as they get fewer; what stays for long is given up on."""
    pressure = _press(Pressure(), taken=120, held=40, now=0.0)
    assert pressure.yields_bytes == 40
    pressure = _press(pressure, taken=110, held=30, now=PATIENCE_S - 1)
    pressure = _press(pressure, taken=110, held=30, now=2 * PATIENCE_S - 2)
    assert pressure.yields_bytes == 30
    pressure = _press(pressure, taken=110, held=30, now=2 * PATIENCE_S - 1)
    assert pressure.yields_bytes == 0
    assert _press(pressure, taken=90, held=30, now=30.0).yields_bytes == 30
