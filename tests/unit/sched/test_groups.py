"""Prompts that arrive together run together."""

from __future__ import annotations

from omlxd.sched.footprint import KvCost
from omlxd.sched.pace import FIRST_S, MIN_STEP_TOKENS, Pace
from omlxd.sched.rows import RowKey, RowSpec
from omlxd.sched.scheduler import GROUP_STEPS, Bounds, Scheduler

CAP = 256


def _scheduler() -> Scheduler:
    return Scheduler(Bounds(max_rows=16, prefill_cap=CAP), KvCost(per_token=1))


def _submit(sched: Scheduler, names: str, prompt: int) -> None:
    for name in names:
        key = RowKey(name, 0)
        sched.submit([RowSpec(key=key, prompt_tokens=prompt, max_tokens=10)])


def _inserted(sched: Scheduler) -> str:
    return "".join(each.key.request_id for each in sched.schedule().insert)


def test_a_lone_prompt_begins_with_a_short_step() -> None:
    """Once the rate is known, a lone prompt begins with a short step and goes on with full ones."""
    sched = _scheduler()
    sched.pace.measured(seconds=1.0, prefill_tokens=500, decode_rows=0)
    _submit(sched, "a", 200)
    assert sched.schedule().steps[0].prefill_step == int(FIRST_S * 500)
    sched.row_progressed(RowKey("a", 0), 50)
    assert sched.schedule().steps[0].prefill_step == CAP


def test_those_behind_it_join_as_one_group() -> None:
    """Seven that arrive during the first step of an eighth prefill with it, a step's share each."""
    sched = _scheduler()
    _submit(sched, "a", 120)
    sched.schedule()
    sched.row_progressed(RowKey("a", 0), 32)
    _submit(sched, "bcdefgh", 120)
    plan = sched.schedule()
    assert "".join(each.key.request_id for each in plan.insert) == "bcdefgh"
    assert plan.steps[0].prefill_step == CAP // 8
    sched.check_integrity()


def test_a_group_is_bounded() -> None:
    """Together they take a few full steps at most; who does not fit waits its turn."""
    sched = _scheduler()
    width = GROUP_STEPS * CAP // 3
    _submit(sched, "abcd", width)
    assert _inserted(sched) == "abc"


def test_a_running_stream_keeps_groups_from_forming() -> None:
    """While somebody decodes, prompts that take more than one step run one after the other."""
    sched = _scheduler()
    _submit(sched, "a", 10)
    sched.schedule()
    sched.row_progressed(RowKey("a", 0), 10)
    _submit(sched, "bc", 200)
    assert _inserted(sched) == "b"


def test_the_first_step_is_never_tiny_nor_beyond_the_cap() -> None:
    """However slow or fast prompts are, the first step stays between the smallest and the cap."""
    assert Pace(token_s=10.0).first_tokens(cap=CAP) == MIN_STEP_TOKENS
    assert Pace(token_s=1e-6).first_tokens(cap=CAP) == CAP
    assert Pace().first_tokens(cap=CAP) == CAP
