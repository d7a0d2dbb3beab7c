"""What engines may take: memory, RAM for blocks, the cold tier."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from omlxd.reconcile.grants import Grant, grants, tightened
from omlxd.reconcile.hot_shares import HotDivision, divide
from tests.unit.reconcile.build import desired, engine, load_of, spec

COLD = "/home/cache"


def test_blocks_get_what_was_divided_if_there_is_room() -> None:
    """RAM for blocks lies inside the engine's share of memory."""
    found = grants(desired(spec("A")), {"A": engine("ready")}, {}, hot={"A": 20}, cold_dir="")
    assert found == {"A": Grant(memory_share_bytes=100, hot_bytes=20)}


def test_blocks_leave_half_of_the_room_to_running_requests() -> None:
    """At most half of what a share has beside the estimate is for blocks."""
    wanted = desired(spec("A", estimate_bytes=80))
    found = grants(wanted, {"A": engine("ready")}, {}, hot={"A": 60}, cold_dir="")
    assert found["A"].hot_bytes == 10


def test_who_cannot_reuse_blocks_gets_none() -> None:
    """An engine that is not in the division has no RAM for blocks."""
    found = grants(desired(spec("A")), {"A": engine("ready")}, {}, hot={}, cold_dir="")
    assert found["A"].hot_bytes == 0


def test_who_leaves_does_not_grow() -> None:
    """A removed model keeps its blocks while it drains, and shrinks if it must."""
    before = {"A": Grant(memory_share_bytes=40, hot_bytes=15)}
    held = {"A": engine("draining")}
    grown = grants(desired(), held, before, hot={"A": 60}, cold_dir="")
    shrunk = grants(desired(), held, before, hot={"A": 5}, cold_dir="")
    assert (grown["A"].hot_bytes, shrunk["A"].hot_bytes) == (15, 5)
    assert grown["A"].memory_share_bytes == 40


def test_blocks_that_make_room_make_it_for_nobody() -> None:
    """Each engine loses in proportion, of its share too: running requests do not fill the gap."""
    granted = {
        "A": Grant(memory_share_bytes=60, hot_bytes=30, cold=True),
        "B": Grant(memory_share_bytes=40, hot_bytes=10),
    }
    assert tightened(granted, 20) == {
        "A": Grant(memory_share_bytes=45, hot_bytes=15, cold=True),
        "B": Grant(memory_share_bytes=35, hot_bytes=5),
    }
    assert tightened(granted, 40) == granted
    assert tightened({}, 0) == {}


def test_the_cold_tier_is_for_workers_of_the_folder_in_use() -> None:
    """A worker that was started with another folder, or with none, has no cold tier."""
    held = {
        "A": engine("ready", load=replace(load_of("A"), cold_dir=COLD)),
        "B": engine("ready", "B", load=replace(load_of("B"), cold_dir="/elsewhere")),
        "C": engine("ready", "C"),
    }
    wanted = desired(spec("A"), spec("B"), spec("C"))
    found = grants(wanted, held, {}, hot={}, cold_dir=COLD)
    assert {model for model, grant in found.items() if grant.cold} == {"A"}
    off = grants(wanted, held, found, hot={}, cold_dir="")
    assert not any(grant.cold for grant in off.values())


@given(
    st.dictionaries(st.sampled_from("ABCDE"), st.integers(0, 60), min_size=1),
    st.integers(0, 200),
    st.dictionaries(st.sampled_from("ABCDE"), st.integers(0, 10**6)),
)
def test_blocks_fit_the_budget_and_every_share(
    estimates: dict[str, int], budget: int, tokens: dict[str, int]
) -> None:
    """All RAM for blocks fits the budget; each engine's fits beside its weights in its share."""
    wanted = desired(*(spec(m, estimate_bytes=b) for m, b in estimates.items()))
    held = {model: engine("ready", model) for model in estimates}
    counts = {model: tokens.get(model, 0) for model in held}
    division = divide(HotDivision(), budget_bytes=budget, tokens=counts, now=0.0)
    found = grants(wanted, held, {}, hot=division.shares, cold_dir="")
    assert sum(grant.hot_bytes for grant in found.values()) <= budget
    for model, grant in found.items():
        assert 0 <= grant.hot_bytes <= grant.memory_share_bytes - estimates[model]
