"""Who runs, who waits, who overtakes, and what memory allows."""

from __future__ import annotations

import pytest

from omlxd.errors import MemoryExceeded
from omlxd.sched.footprint import KvCost
from omlxd.sched.pace import MIN_STEP_TOKENS
from omlxd.sched.rows import RowKey, RowSpec
from omlxd.sched.scheduler import HORIZON_TOKENS, Bounds, Scheduler, StepPlan

COST = KvCost(per_token=1)
CAP = 256


def scheduler(*, max_rows: int = 8, budget: int | None = None) -> Scheduler:
    return Scheduler(Bounds(max_rows=max_rows, prefill_cap=CAP, kv_budget_bytes=budget), COST)


def key(name: str) -> RowKey:
    return RowKey(name, 0)


def submit(sched: Scheduler, name: str, prompt: int = 10, max_tokens: int = 10) -> None:
    sched.submit([RowSpec(key=key(name), prompt_tokens=prompt, max_tokens=max_tokens)])


def inserted(plan: StepPlan) -> list[str]:
    return [each.key.request_id for each in plan.insert]


def prefilled(sched: Scheduler, name: str, prompt: int = 10) -> None:
    sched.row_progressed(key(name), prompt)


def test_rows_run_in_order_of_arrival_up_to_the_bound() -> None:
    """With room for two, the third waits."""
    sched = scheduler(max_rows=2)
    for name in "abc":
        submit(sched, name)
    assert inserted(sched.schedule()) == ["a", "b"]
    assert (sched.running, sched.waiting) == (2, 1)
    sched.check_integrity()


def test_an_ended_row_makes_room_in_the_very_next_plan() -> None:
    """The plan that takes a row out puts the next one in."""
    sched = scheduler(max_rows=1)
    submit(sched, "a")
    submit(sched, "b")
    sched.schedule()
    prefilled(sched, "a")
    sched.row_ended(key("a"))
    plan = sched.schedule()
    assert [each.key for each in plan.remove] == [key("a")]
    assert inserted(plan) == ["b"]


def test_a_cancelled_row_leaves_whatever_it_was_doing() -> None:
    """Waiting rows vanish, running ones leave their lane with the next plan."""
    sched = scheduler(max_rows=1)
    submit(sched, "runs")
    submit(sched, "waits")
    sched.schedule()
    assert sched.cancel("waits") == [key("waits")]
    assert sched.cancel("runs") == [key("runs")]
    assert sched.cancel("runs") == []
    assert not sched.is_idle
    assert [each.key for each in sched.schedule().remove] == [key("runs")]
    assert sched.is_idle


def test_one_row_of_a_request_can_be_cancelled_alone() -> None:
    """The other choices of the request go on."""
    sched = scheduler()
    keys = [RowKey("a", index) for index in range(3)]
    sched.submit([RowSpec(key=each, prompt_tokens=5, max_tokens=5) for each in keys])
    assert sched.cancel("a", 1) == [keys[1]]
    assert [each.key for each in sched.schedule().insert] == [keys[0], keys[2]]


def test_a_short_prompt_overtakes_while_a_huge_one_is_run() -> None:
    """It shares the step with the huge prompt instead of waiting behind it."""
    sched = scheduler()
    submit(sched, "huge", prompt=10_000)
    sched.schedule()
    submit(sched, "short", prompt=400)
    plan = sched.schedule()
    assert inserted(plan) == ["short"]
    assert [step.prefill_step for step in plan.steps] == [CAP]


def test_a_prompt_as_long_as_the_one_being_run_waits_for_it() -> None:
    """Two equal prompts one after the other give one early first token; together none."""
    sched = scheduler()
    submit(sched, "first", prompt=1000)
    submit(sched, "second", prompt=1000)
    submit(sched, "short", prompt=300)
    assert inserted(sched.schedule()) == ["first", "short"]
    prefilled(sched, "short", 300)
    assert inserted(sched.schedule()) == []
    prefilled(sched, "first", 1000)
    assert inserted(sched.schedule()) == ["second"]


def test_rows_that_overtook_do_not_hold_up_who_they_overtook() -> None:
    """When the older prompt is through, the next in line starts beside the overtakers."""
    sched = scheduler()
    submit(sched, "first", prompt=1000)
    submit(sched, "second", prompt=1000)
    submit(sched, "short", prompt=300)
    sched.schedule()
    prefilled(sched, "first", 1000)
    assert inserted(sched.schedule()) == ["second"]


def test_prompts_that_fit_one_step_together_start_together() -> None:
    """Eight prompts of 30 tokens are one step of 256."""
    sched = scheduler()
    for name in "abcdefgh":
        submit(sched, name, prompt=30)
    assert inserted(sched.schedule()) == list("abcdefgh")


def test_a_decoding_row_shrinks_the_step() -> None:
    """Beside a stream whose cost is unknown the step has the smallest size."""
    sched = scheduler()
    submit(sched, "stream")
    sched.schedule()
    prefilled(sched, "stream")
    submit(sched, "newcomer", prompt=1000)
    assert [step.prefill_step for step in sched.schedule().steps] == [MIN_STEP_TOKENS]


def test_without_a_memory_bound_all_rows_share_one_lane() -> None:
    """One batch is the fastest."""
    sched = scheduler()
    submit(sched, "long", prompt=100_000)
    sched.schedule()
    submit(sched, "short", prompt=10)
    assert [each.lane for each in sched.schedule().insert] == [0]


def test_a_prompt_that_never_fits_is_refused_with_the_numbers() -> None:
    """Waiting would not help it, and it does not hold up the line."""
    sched = scheduler(budget=1024)
    submit(sched, "big", prompt=2000)
    submit(sched, "small")
    plan = sched.schedule()
    [(request_id, error)] = plan.refuse
    assert request_id == "big"
    assert isinstance(error, MemoryExceeded)
    assert "2000 prompt tokens" in error.message
    assert "2048 bytes" in error.message
    assert "has 1024" in error.message
    assert inserted(plan) == ["small"]


def test_a_prompt_that_leaves_no_room_for_one_token_is_refused() -> None:
    """A row that could draw nothing is no use."""
    sched = scheduler(budget=1024)
    submit(sched, "exact", prompt=1024)
    assert [request_id for request_id, _ in sched.schedule().refuse] == ["exact"]


def test_the_last_row_runs_on_when_the_memory_is_taken_away() -> None:
    """Putting it back would gain nothing: it would start again in the same room."""
    sched = scheduler(budget=4096)
    submit(sched, "a", prompt=1000)
    sched.schedule()
    sched.configure(Bounds(max_rows=8, prefill_cap=CAP, kv_budget_bytes=512))
    plan = sched.schedule()
    assert (plan.remove, plan.refuse, sched.running) == ([], [], 1)


def test_a_row_ends_by_length_where_memory_ends() -> None:
    """A row alone may grow to what the memory holds, and is told so when it starts."""
    sched = scheduler(budget=1024)
    submit(sched, "a", prompt=1000, max_tokens=500)
    [insertion] = sched.schedule().insert
    assert insertion.max_tokens == 24


def test_a_short_row_gets_a_lane_of_its_own_when_the_mixed_batch_would_not_fit() -> None:
    """8,000 tokens fit once, not twice; a short row fits beside them."""
    sched = scheduler(budget=12_000)
    submit(sched, "long", prompt=8000)
    submit(sched, "short", prompt=100)
    plan = sched.schedule()
    assert [(each.key.request_id, each.lane) for each in plan.insert] == [("long", 0), ("short", 1)]
    assert [step.lane for step in plan.steps] == [0, 1]


def test_where_no_lane_has_room_the_row_waits_and_keeps_its_place() -> None:
    """Rows behind it do not slip past it for want of memory."""
    sched = scheduler(budget=12_000)
    submit(sched, "long", prompt=8000)
    sched.schedule()
    prefilled(sched, "long", 8000)
    submit(sched, "other", prompt=7000)
    submit(sched, "short", prompt=100)
    assert inserted(sched.schedule()) == []
    sched.row_ended(key("long"))
    assert inserted(sched.schedule())[0] == "other"


def test_the_youngest_row_steps_back_when_rows_outgrow_the_memory() -> None:
    """Its output so far becomes part of its prompt, and it comes before later rows again."""
    budget = 4 * (HORIZON_TOKENS + 256)
    sched = scheduler(budget=budget)
    for name in "ab":
        submit(sched, name, prompt=100, max_tokens=100_000)
    assert inserted(sched.schedule()) == ["a", "b"]
    for name in "ab":
        prefilled(sched, name, 100)
    grown = 0
    plan = sched.schedule()
    while not plan.remove:
        for name in "ab":
            sched.row_drew(key(name))
        grown += 1
        plan = sched.schedule()
    assert [(each.key, each.preempted) for each in plan.remove] == [(key("b"), True)]
    assert 2 * COST.row_bytes(100 + grown) > budget
    submit(sched, "c", prompt=5)
    sched.row_ended(key("a"))
    assert inserted(sched.schedule())[0] == "b"
    [stats, _] = sched.row_stats()
    assert (stats.computed_tokens, stats.output_tokens) == (0, grown)
    sched.row_progressed(key("b"), 100 + grown)
    assert sched.decoding(0) == 1
    sched.check_integrity()


def test_suspects_of_a_broken_prefill_run_alone() -> None:
    """Two rows prefilled when the step broke: each is tried without company."""
    sched = scheduler()
    submit(sched, "a")
    submit(sched, "b")
    sched.schedule()
    sched.prefill_failed([key("a"), key("b")])
    submit(sched, "c")
    plan = sched.schedule()
    assert [each.key for each in plan.remove] == [key("a"), key("b")]
    assert inserted(plan) == ["a"]
    prefilled(sched, "a")
    assert inserted(sched.schedule()) == ["b"]
    prefilled(sched, "b")
    assert inserted(sched.schedule()) == ["c"]
    sched.check_integrity()


def test_a_lowered_bound_lets_running_rows_run_on() -> None:
    """Nobody is thrown out by a change of settings."""
    sched = scheduler(max_rows=3)
    for name in "abcd":
        submit(sched, name)
    sched.schedule()
    sched.configure(Bounds(max_rows=1, prefill_cap=CAP))
    plan = sched.schedule()
    assert (plan.remove, plan.insert, sched.running) == ([], [], 3)


def test_a_row_submitted_twice_is_our_own_bug() -> None:
    """Keys are unique while they live."""
    sched = scheduler()
    submit(sched, "a")
    with pytest.raises(AssertionError):
        submit(sched, "a")


def test_a_held_row_stands_in_nobodys_way() -> None:
    """Those behind it start; released, it is first in the line again."""
    sched = scheduler(max_rows=1)
    for name in "abc":
        submit(sched, name)
    sched.hold(key("a"))
    assert inserted(sched.schedule()) == ["b"]
    assert [each.status for each in sched.row_stats()] == ["prefill", "restoring", "waiting"]
    assert (sched.running, sched.waiting) == (1, 2)
    sched.release(key("a"))
    sched.row_ended(key("b"))
    assert inserted(sched.schedule()) == ["a"]
    sched.check_integrity()


def test_a_row_can_be_held_in_the_moment_of_its_insertion() -> None:
    """It goes back to its place without being taken out of a lane it never reached."""
    sched = scheduler()
    submit(sched, "a")
    submit(sched, "b")
    assert inserted(sched.schedule()) == ["a", "b"]
    sched.hold(key("a"))
    sched.check_integrity()
    plan = sched.schedule()
    assert (plan.remove, plan.insert) == ([], [])
    sched.release(key("a"))
    assert inserted(sched.schedule()) == ["a"]


def test_with_held_rows_alone_there_is_no_work() -> None:
    """The loop may sleep, though it is not at rest; a row that is gone cannot be released."""
    sched = scheduler()
    submit(sched, "a")
    assert sched.has_work
    sched.hold(key("a"))
    assert (sched.has_work, sched.is_idle) == (False, False)
    sched.release(key("a"))
    assert sched.has_work
    sched.cancel("a")
    sched.release(key("a"))
    assert (sched.has_work, sched.is_idle) == (False, True)


def test_a_prompt_that_is_mostly_restored_counts_as_a_short_one() -> None:
    """It may overtake a long prompt, and what is left of it is what others compare with."""
    sched = scheduler()
    submit(sched, "long", 4 * CAP)
    sched.schedule()
    submit(sched, "as long", 4 * CAP)
    submit(sched, "warm", 4 * CAP)
    sched.row_restorable(key("warm"), 4 * CAP - 10)
    assert inserted(sched.schedule()) == ["warm"]
    sched.row_progressed(key("warm"), 4 * CAP - 10)
    submit(sched, "short", 5)
    submit(sched, "too long", 6)
    assert inserted(sched.schedule()) == ["short"]
    sched.check_integrity()


def test_a_row_sent_back_to_the_line_has_to_be_matched_anew() -> None:
    """What was restorable before may be gone."""
    sched = scheduler()
    submit(sched, "a", 100)
    submit(sched, "b", 100)
    sched.row_restorable(key("b"), 90)
    sched.schedule()
    sched.prefill_failed([key("a"), key("b")])
    sched.check_integrity()
    assert [each.computed_tokens for each in sched.row_stats()] == [0, 0]
