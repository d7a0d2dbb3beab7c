"""How much RAM for blocks memory pressure takes away, and gives back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.reconcile.pressure import squeeze

SIZES = st.integers(0, 1_000)


@pytest.mark.parametrize(
    ("before", "taken", "held", "after"),
    [
        (0, 90, 40, 0),  # within the limit
        (0, 110, 40, 20),  # 10 above it: 30 of the 40 that are held may stay, of a budget of 50
        (20, 110, 30, 30),  # not enough yet
        (0, 200, 40, 50),  # nothing of it may stay
        (30, 97, 20, 30),  # just below the limit nothing swings back
        (30, 85, 20, 20),  # 10 below the slack: 10 come back
        (30, 10, 20, 0),
    ],
)
def test_blocks_make_room_and_come_back(before: int, taken: int, held: int, after: int) -> None:
    """Above the limit what is held shrinks by the excess; well below it comes back by the rest."""
    assert squeeze(before, taken=taken, limit=100, budget=50, held=held) == after


@given(before=SIZES, taken=SIZES, limit=SIZES, budget=SIZES, held=SIZES)
def test_it_takes_at_most_the_budget_and_enough(
    before: int, taken: int, limit: int, budget: int, held: int
) -> None:
    """What is left of the budget brings the processes to the limit, as far as blocks can."""
    after = squeeze(before, taken=taken, limit=limit, budget=budget, held=held)
    assert 0 <= after <= budget
    if taken > limit:
        assert budget - after <= max(0, held - (taken - limit))
    else:
        assert after <= before
