"""Memory: who starts, who goes, who waits, who is refused."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.reconcile.admission import FAIR_WAIT_S, choose_victims
from omlxd.reconcile.plan import plan
from omlxd.reconcile.state import (
    DrainEngine,
    EngineObserved,
    RefuseWaiting,
    StartEngine,
    StopEngine,
)
from tests.unit.reconcile.build import NOW, desired, engine, observed, spec


def _idle(model: str, size: int, last_used: float = NOW - 1) -> EngineObserved:
    return engine("ready", model, footprint_bytes=size, last_used=last_used)


def _busy(model: str, size: int, loaded_at: float = 0.0) -> EngineObserved:
    return engine("ready", model, footprint_bytes=size, in_flight=1, loaded_at=loaded_at)


def _waits(since: float = NOW) -> EngineObserved:
    return engine("absent", waiting=1, waiting_since=since)


# ------------------------------------------------------------------ who goes


@pytest.mark.parametrize(
    ("sizes", "need", "gone"),
    [
        ({"A": 10, "B": 30, "C": 20}, 15, "C"),  # the smallest that suffices
        ({"A": 20, "B": 20}, 15, "A"),  # equally small: the least recently used
        ({"A": 10, "B": 10, "C": 10, "D": 30}, 35, "AD"),  # the fewest, old before young
        ({"A": 10, "B": 10, "C": 10}, 20, "AB"),
        ({"A": 10, "B": 10}, 21, ""),  # all together do not suffice: nobody goes in vain
        ({}, 1, ""),
    ],
)
def test_choice_of_victims(sizes: dict[str, int], need: int, gone: str) -> None:
    """One that suffices, else the fewest; A is the least recently used, then B, and so on."""
    engines = {m: _idle(m, size, last_used=ord(m)) for m, size in reversed(sizes.items())}
    assert "".join(choose_victims(engines, need)) == gone


@given(
    sizes=st.lists(st.integers(1, 20), max_size=6),
    uses=st.permutations(range(6)),
    need=st.integers(1, 80),
)
def test_victims_are_the_fewest_and_the_oldest(
    sizes: list[int], uses: list[int], need: int
) -> None:
    """Against all subsets: no smaller one suffices, and no equally small one is older."""
    engines = {f"M{i}": _idle(f"M{i}", size, last_used=uses[i]) for i, size in enumerate(sizes)}
    gone = choose_victims(engines, need)
    enough = [
        subset
        for count in range(1, len(engines) + 1)
        for subset in combinations(sorted(engines, key=lambda m: engines[m].last_used), count)
        if sum(engines[m].held_bytes for m in subset) >= need
    ]
    if not enough:
        assert gone == ()
    elif len(enough[0]) == 1:
        assert engines[gone[0]].held_bytes == min(
            engines[m].held_bytes for (m,) in (s for s in enough if len(s) == 1)
        )
    else:
        assert gone == enough[0]


def test_eviction_and_start_are_two_passes() -> None:
    """The evicted engine's memory counts until its worker is gone; then the start follows."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60), limit=100)
    first = plan(wanted, observed(A=_idle("A", 50), B=_waits()), NOW)
    assert first.actions == (StopEngine("A", "evicted", "B"),)
    assert first.waits == {"B": "waits until A is gone"}
    ending = engine("stopping", footprint_bytes=50, leaving="evicted")
    second = plan(wanted, observed(A=ending, B=_waits()), NOW)
    assert (second.actions, second.waits) == ((), {"B": "waits until A is gone"})
    third = plan(wanted, observed(A=engine("absent"), B=_waits()), NOW)
    assert [action.model for action in third.actions if isinstance(action, StartEngine)] == ["B"]


@pytest.mark.parametrize(
    "blocker",
    [
        _busy("A", 50),
        engine("ready", waiting=1, footprint_bytes=50),
        engine("loading", reserved_bytes=50),
        engine("starting", reserved_bytes=50),
        engine("draining", footprint_bytes=50, in_flight=1, leaving="unload"),
    ],
)
def test_the_busy_are_waited_for(blocker: EngineObserved) -> None:
    """Queued, loading, running or draining: the request waits, nobody is evicted or refused."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60), limit=100)
    made = plan(wanted, observed(A=blocker, B=_waits()), NOW)
    assert made.actions == ()
    assert made.waits["B"] == "needs 60B, 50B free; waits for A to become idle"
    assert not made.cannot_fit


def test_reserved_memory_counts_while_loading() -> None:
    """A loading engine holds its estimate even if little is allocated yet."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60), limit=100)
    loading = engine("loading", reserved_bytes=41, footprint_bytes=2)
    assert plan(wanted, observed(A=loading, B=_waits()), NOW).actions == ()


def test_two_starts_of_one_pass_share_what_is_free() -> None:
    """What the first takes is gone for the second."""
    wanted = desired(spec("A", estimate_bytes=60), spec("B", estimate_bytes=60), limit=100)
    made = plan(wanted, observed(A=_waits(NOW - 1), B=_waits(NOW - 2)), NOW)
    assert [action.model for action in made.actions if isinstance(action, StartEngine)] == ["B"]
    assert made.waits == {"A": "needs 60B, 40B free; waits for B to become idle"}


# ------------------------------------------------------------------ who is refused


def test_what_can_never_fit_is_refused_with_the_sum() -> None:
    """Where pins leave no room the answer is 507, naming limit, base, pins and the need."""
    wanted = desired(
        spec("A", pin=True), spec("B", pin=True), spec("C", estimate_bytes=40), limit=100
    )
    seen = observed(A=_idle("A", 35), B=_busy("B", 25), C=_waits(), base_bytes=5)
    made = plan(wanted, seen, NOW)
    assert made.actions == (
        RefuseWaiting(
            "C",
            "insufficient_memory",
            "C needs 40B and can never fit: limit 100B, daemon 5B, pinned A 35B, pinned B 25B; "
            "unpin a model, raise memory.max_process_memory or choose a smaller model",
        ),
    )
    assert made.cannot_fit == {"C"}


def test_a_model_larger_than_the_limit_is_refused_without_pins() -> None:
    """The sum names no pins where there are none."""
    made = plan(desired(spec("A", estimate_bytes=101), limit=100), observed(A=_waits()), NOW)
    (refusal,) = made.actions
    assert isinstance(refusal, RefuseWaiting)
    assert refusal.message == (
        "A needs 101B and can never fit: limit 100B, daemon 0B; "
        "raise memory.max_process_memory or choose a smaller model"
    )


def test_a_pin_that_cannot_fit_beside_the_other_pins_is_told_so() -> None:
    """No request waits, so nothing is refused; the wait carries the sum, and others go on."""
    wanted = desired(spec("A", pin=True), spec("B", pin=True, estimate_bytes=95), limit=100)
    made = plan(wanted, observed(A=_idle("A", 10)), NOW)
    assert made.actions == ()
    assert made.cannot_fit == {"B"}
    assert "pinned A 10B" in made.waits["B"]


def test_omlxctl_load_of_what_cannot_fit_is_refused() -> None:
    """The command gets the same answer as a request."""
    asked = engine("absent", load_requested=True)
    made = plan(desired(spec("A", estimate_bytes=101)), observed(A=asked), NOW)
    assert [type(action) for action in made.actions] == [RefuseWaiting]


# ------------------------------------------------------------------ order and fairness


def test_pins_come_before_requests_and_requests_by_their_wait() -> None:
    """Order of service: pin, longest wait, `omlxctl load`, preload."""
    wanted = desired(spec("A", preload=True), spec("B"), spec("C"), spec("D", pin=True), spec("E"))
    seen = observed(B=_waits(NOW - 1), C=_waits(NOW - 2), E=engine("absent", load_requested=True))
    starts = [a for a in plan(wanted, seen, NOW).actions if isinstance(a, StartEngine)]
    assert [(start.model, start.reason) for start in starts] == [
        ("D", "pin"),
        ("C", "request"),
        ("B", "request"),
        ("E", "load"),
        ("A", "preload"),
    ]


def test_a_later_model_starts_beside_one_that_waits_if_both_will_fit() -> None:
    """C fits now and will still fit once B has its room, so it need not wait for A to end."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60), spec("C", estimate_bytes=20))
    made = plan(wanted, observed(A=_busy("A", 50), B=_waits(NOW - 9), C=_waits()), NOW)
    assert [action.model for action in made.actions if isinstance(action, StartEngine)] == ["C"]


def test_a_later_model_does_not_take_the_room_of_one_that_waits() -> None:
    """C would fit now, but not beside B: it waits its turn."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60), spec("C", estimate_bytes=45))
    made = plan(wanted, observed(A=_busy("A", 50), B=_waits(NOW - 9), C=_waits()), NOW)
    assert made.actions == ()
    assert made.waits["C"] == "waits until B had its turn"


def test_a_later_model_does_not_take_what_an_eviction_frees() -> None:
    """What A's end will free is B's; C evicts someone else."""
    wanted = desired(*(spec(name, estimate_bytes=50) for name in "ABCD"))
    seen = observed(
        A=_idle("A", 50, NOW - 9), D=_idle("D", 50), B=_waits(NOW - 9), C=_waits(NOW - 8)
    )
    assert plan(wanted, seen, NOW).actions == (
        StopEngine("A", "evicted", "B"),
        StopEngine("D", "evicted", "C"),
    )


def test_a_long_wait_takes_a_turn_from_busy_engines() -> None:
    """After FAIR_WAIT_S the engine in the way takes no new requests; the plan asks back by then."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60))
    early = plan(wanted, observed(A=_busy("A", 50), B=_waits(NOW - FAIR_WAIT_S + 5)), NOW)
    assert (early.actions, early.requeue_after) == ((), 5.0)
    old = _busy("A", 50, loaded_at=NOW - FAIR_WAIT_S)
    late = plan(wanted, observed(A=old, B=_waits(NOW - FAIR_WAIT_S)), NOW)
    assert late.actions == (DrainEngine("A", "turn"),)
    draining = engine("draining", footprint_bytes=50, in_flight=1, leaving="turn")
    then = plan(wanted, observed(A=draining, B=_waits(NOW - FAIR_WAIT_S)), NOW)
    assert (then.actions, then.requeue_after) == ((), None)


def test_a_turn_is_taken_from_no_more_engines_than_needed() -> None:
    """While one that suffices drains already, or drains for another, nobody else must."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60), spec("C"), limit=110)
    draining = engine("draining", footprint_bytes=50, in_flight=1, leaving="turn")
    seen = observed(A=draining, B=_waits(0.0), C=_busy("C", 50))
    assert plan(wanted, seen, NOW).actions == ()
    both = desired(*(spec(name, estimate_bytes=60) for name in "ABCD"), limit=200)
    seen = observed(A=_busy("A", 90), B=_waits(0.0), C=_waits(1.0), D=_busy("D", 90))
    assert plan(both, seen, NOW).actions == (DrainEngine("A", "turn"),)


def test_no_turn_is_taken_from_an_engine_that_has_just_come() -> None:
    """Whoever was loaded keeps its turn for FAIR_WAIT_S, so two models never chase each other."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60))
    young = _busy("A", 50, loaded_at=NOW - FAIR_WAIT_S + 7)
    made = plan(wanted, observed(A=young, B=_waits(0.0)), NOW)
    assert (made.actions, made.requeue_after) == ((), 7.0)


def test_an_engine_that_holds_nothing_any_more_may_drain() -> None:
    """A process measured in its last moment counts zero bytes; turns are taken beside it."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60), spec("C"))
    dying = engine("draining", "C", footprint_bytes=0, in_flight=1, leaving="turn")
    seen = observed(A=_busy("A", 50), B=_waits(0.0), C=dying)
    assert plan(wanted, seen, NOW).actions == (DrainEngine("A", "turn"),)


def test_no_turn_is_taken_from_a_load() -> None:
    """What has not served anyone yet keeps its turn."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=60))
    loading = engine("loading", reserved_bytes=50, in_flight=1)
    assert plan(wanted, observed(A=loading, B=_waits(0.0)), NOW).actions == ()


def test_no_turn_is_taken_from_a_pin() -> None:
    """A pinned engine is never drained to make room, however long someone waits."""
    wanted = desired(
        spec("A", pin=True, estimate_bytes=30),
        spec("B", estimate_bytes=60),
        spec("C", estimate_bytes=60),
    )
    seen = observed(A=_busy("A", 30), B=_busy("B", 60), C=_waits(0.0))
    assert plan(wanted, seen, NOW).actions == (DrainEngine("B", "turn"),)


# ------------------------------------------------------------------ above the limit


def test_growth_above_the_limit_evicts_the_idle_oldest_first() -> None:
    """As many idle, unpinned engines go as it takes; busy and pinned ones stay."""
    wanted = desired(*(spec(name) for name in "ABCD"), spec("E", pin=True), limit=100)
    seen = observed(
        A=_busy("A", 60),
        B=_idle("B", 20, NOW - 3),
        C=_idle("C", 20, NOW - 5),
        D=_idle("D", 20, NOW - 4),
        E=_idle("E", 20, NOW - 9),
    )
    assert plan(wanted, seen, NOW).actions == (
        StopEngine("C", "evicted"),
        StopEngine("D", "evicted"),
    )


def test_blocks_go_before_an_engine_does() -> None:
    """An excess that blocks can make up for evicts nobody; one beyond that does."""
    wanted = desired(spec("A"), spec("B"), limit=100)
    engines = {"A": _busy("A", 60), "B": _idle("B", 50)}
    assert plan(wanted, observed(**engines, hot_bytes=10), NOW).actions == ()
    assert plan(wanted, observed(**engines, hot_bytes=9), NOW).actions == (
        StopEngine("B", "evicted"),
    )


def test_above_the_limit_with_nobody_idle_nothing_is_killed() -> None:
    """A stream is never cut for memory that is already taken; nothing new starts either."""
    wanted = desired(spec("A"), spec("B", estimate_bytes=1), limit=100)
    made = plan(wanted, observed(A=_busy("A", 140), B=_waits()), NOW)
    assert made.actions == ()
    assert made.waits["B"] == "needs 1B, 0B free; waits for A to become idle"
