"""The RAM for KV blocks divided among engines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlxd.reconcile.hot_shares import HALF_LIFE_S, REVIEW_S, HotDivision, divide

BUDGET = 1000
TOKENS = st.dictionaries(st.sampled_from("ABCDE"), st.integers(0, 10**9))


def first(**tokens: int) -> HotDivision:
    return divide(HotDivision(), budget_bytes=BUDGET, tokens=tokens, now=0.0)


def later(before: HotDivision, after_s: float = REVIEW_S, **tokens: int) -> HotDivision:
    now = before.decided_at + after_s
    return divide(before, budget_bytes=before.budget_bytes, tokens=tokens, now=now)


def test_nobody_gets_nothing() -> None:
    """Without engines there is nothing to divide."""
    assert first().shares == {}


def test_alone_it_gets_all() -> None:
    """One engine may use the whole budget, busy or not."""
    assert first(A=0).shares == {"A": BUDGET}
    assert first(A=7).shares == {"A": BUDGET}


def test_before_anything_ran_it_is_divided_evenly() -> None:
    """Engines that were sent nothing are alike."""
    assert first(A=0, B=0).shares == {"A": 500, "B": 500}


def test_recent_tokens_decide_and_the_idle_keep_a_floor() -> None:
    """A quarter goes evenly, the rest by tokens."""
    assert first(A=900, B=300, C=0).shares == {"A": 83 + 563, "B": 83 + 187, "C": 83}


def test_old_tokens_count_less() -> None:
    """What came a half-life ago weighs half of what comes now."""
    division = later(first(A=1000, B=0), HALF_LIFE_S, A=1000, B=1000)
    assert division.weights == {"A": 500.0, "B": 1000.0}


def test_a_new_worker_counts_from_zero() -> None:
    """A count below the last one is another worker's: all of it is recent."""
    assert later(first(A=1000), HALF_LIFE_S, A=30).weights == {"A": 530.0}


def test_it_is_reviewed_once_a_minute() -> None:
    """In between tokens change nothing; then they do."""
    begun = first(A=0, B=0)
    assert later(begun, REVIEW_S - 1, A=500, B=0) is begun
    assert later(begun, REVIEW_S, A=500, B=0).shares == {"A": 125 + 750, "B": 125}


def test_engines_that_come_and_go_are_seen_at_once() -> None:
    """No minute is waited for when the set of engines is another."""
    begun = first(A=10)
    assert later(begun, 0.1, A=10, B=0).shares.keys() == {"A", "B"}
    assert later(later(begun, 0.1, A=10, B=0), 0.1, A=10).shares == {"A": BUDGET}


def test_another_budget_is_in_force_at_once() -> None:
    """A smaller budget shrinks every share."""
    begun = first(A=100, B=100)
    smaller = divide(begun, budget_bytes=100, tokens=begun.tokens, now=0.1)
    assert smaller.shares == {"A": 50, "B": 50}


def test_small_changes_are_left_alone() -> None:
    """A move of less than a twentieth of the budget is not worth the blocks it would cost."""
    begun = first(A=1000, B=1000)
    assert later(begun, A=1050, B=1000).shares == begun.shares
    assert later(begun, A=2000, B=1000).shares != begun.shares


@given(TOKENS, TOKENS, st.integers(0, 2**50), st.floats(0, 1e6))
def test_the_shares_fit_the_budget(
    seen: dict[str, int], tokens: dict[str, int], budget: int, elapsed: float
) -> None:
    """The shares are of exactly these engines, and sum to the budget at most."""
    before = divide(HotDivision(), budget_bytes=budget, tokens=seen, now=0.0)
    now = divide(before, budget_bytes=budget, tokens=tokens, now=elapsed)
    for division in (before, now):
        assert sum(division.shares.values()) <= budget
        assert all(share >= 0 for share in division.shares.values())
    assert now.shares.keys() == tokens.keys()


@given(TOKENS, st.integers(0, 2**50), st.lists(st.floats(0, 1e5), max_size=5))
def test_what_does_not_change_changes_nothing(
    tokens: dict[str, int], budget: int, steps: list[float]
) -> None:
    """The same engines at rest keep their shares for ever."""
    division = divide(HotDivision(), budget_bytes=budget, tokens=tokens, now=0.0)
    shares, now = division.shares, 0.0
    for step in steps:
        now += step
        division = divide(division, budget_bytes=budget, tokens=tokens, now=now)
        assert division.shares == shares
