"""What has to go from the cold tier."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.reconcile.cold_budget import Excess, cutoff, excess

ENTRIES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), min_size=1)


@pytest.mark.parametrize(
    ("held", "free", "expected"),
    [
        (1000, 500, None),  # at both bounds
        (1001, 500, Excess(51, "budget")),  # down to 95% of 1000
        (900, 499, Excess(26, "min_free")),  # up to 105% of 500
        (1001, 499, Excess(51, "budget")),
        (1001, 400, Excess(125, "min_free")),  # the larger of both
        (60, 0, Excess(60, "min_free")),  # not more than there is
        (0, 0, None),
    ],
)
def test_bounds(held: int, free: int, expected: Excess | None) -> None:
    """Past the budget, or short of free space, it goes down to a little below the bound."""
    assert excess(held=held, budget=1000, free=free, min_free=500) == expected


@given(*[st.integers(0, 10**12)] * 4)
def test_after_it_went_nothing_more_has_to(held: int, budget: int, free: int, least: int) -> None:
    """One eviction is enough, unless there was not enough to give."""
    first = excess(held=held, budget=budget, free=free, min_free=least)
    if first is not None:
        assert 0 < first.bytes <= held
        left = held - first.bytes
        again = excess(held=left, budget=budget, free=free + first.bytes, min_free=least)
        assert again is None


def test_the_oldest_go_until_it_is_enough() -> None:
    """The answer is the age of the last entry that has to go."""
    assert cutoff([30, 10, 20], [5, 5, 5], 1) == 10
    assert cutoff([30, 10, 20], [5, 5, 5], 6) == 20
    assert cutoff([30, 10, 20], [5, 5, 5], 99) == 30


@given(ENTRIES, st.integers(1, 3000))
def test_the_cutoff_is_enough_and_not_too_much(entries: list[tuple[int, int]], wanted: int) -> None:
    """All that is older is too little, with what is exactly as old it is enough."""
    mtimes, sizes = zip(*entries, strict=True)
    last = cutoff(mtimes, sizes, wanted)
    assert sum(size for mtime, size in entries if mtime < last) < wanted
    if sum(sizes) >= wanted:
        assert sum(size for mtime, size in entries if mtime <= last) >= wanted
