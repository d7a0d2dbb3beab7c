"""Bytes of rows and batches, and where a row fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlxd.sched.footprint import KvCost, best_lane

PLAIN = KvCost(per_token=10)


def test_buffers_count_in_steps_of_256_tokens() -> None:
    """A row of one token holds a buffer of 256."""
    assert PLAIN.row_bytes(1) == PLAIN.row_bytes(256) == 2560
    assert PLAIN.row_bytes(257) == 5120


def test_a_window_stops_growing_and_a_state_never_does() -> None:
    """Sliding layers cost their window at most; recurrent ones the same at any length."""
    cost = KvCost(per_token=1, windows=((10, 512),), per_row=7)
    assert cost.row_bytes(256) == 7 + 256 + 2560
    assert cost.row_bytes(10_240) == 7 + 10_240 + 5120
    assert cost.bytes_per_token == 11


def test_a_batch_costs_its_longest_row_times_its_rows() -> None:
    """A short row beside a long one pays for the long one."""
    assert PLAIN.rectangle_bytes([1, 1000]) == 2 * PLAIN.row_bytes(1000)
    assert PLAIN.rectangle_bytes([]) == 0


def test_a_model_without_growing_layers_takes_any_length() -> None:
    """A purely recurrent model is never too long, only too many."""
    cost = KvCost(per_row=100)
    assert cost.tokens_within(100) > 1_000_000
    assert cost.tokens_within(99) == 0


@given(
    per_token=st.integers(1, 100),
    window=st.integers(0, 2000),
    per_row=st.integers(0, 10_000),
    budget=st.integers(0, 10_000_000),
)
def test_the_longest_row_fits_and_the_next_longer_does_not(
    per_token: int, window: int, per_row: int, budget: int
) -> None:
    """`tokens_within` inverts `row_bytes`."""
    cost = KvCost(per_token=per_token, windows=((3, window),), per_row=per_row)
    tokens = cost.tokens_within(budget)
    assert tokens == 0 or cost.row_bytes(tokens) <= budget
    assert cost.row_bytes(tokens + 1) > budget


def test_a_row_joins_the_lane_that_grows_least() -> None:
    """A short row joins the short lane, a long one the long lane."""
    lanes = {0: [10_000], 1: [100]}
    assert best_lane(lanes, 100, cost=PLAIN, budget=10**9) == 1
    assert best_lane(lanes, 9_000, cost=PLAIN, budget=10**9) == 0


def test_joining_needs_room_for_the_rectangle_twice() -> None:
    """While two batches become one, both exist."""
    lanes = {0: [256]}
    assert best_lane(lanes, 256, cost=PLAIN, budget=4 * 2560) == 0
    assert best_lane(lanes, 256, cost=PLAIN, budget=4 * 2560 - 1) is None


def test_an_empty_lane_takes_a_row_without_a_copy() -> None:
    """The first row of a lane copies nothing."""
    assert best_lane({0: []}, 256, cost=PLAIN, budget=2560) == 0
    assert best_lane({0: []}, 256, cost=PLAIN, budget=2559) is None
