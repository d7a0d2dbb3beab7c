"""Prompts that arrive together run together."""

from __future__ import annotations

from omlxd.sched.footprint import KvCost
from omlxd.sched.rows import RowKey, RowSpec
from omlxd.sched.scheduler import GROUP_TOKENS, Bounds, Scheduler

CAP = 256


def _scheduler() -> Scheduler:
    return Scheduler(Bounds(max_rows=16, prefill_cap=CAP), KvCost(per_token=1))


def _submit(sched: Scheduler, names: str, prompt: int) -> None:
    for name in names:
        key = RowKey(name, 0)
        sched.submit([RowSpec(key=key, prompt_tokens=prompt, max_tokens=10)])


def _inserted(sched: Scheduler) -> str:
    return "".join(each.key.request_id for each in sched.schedule().insert)


def test_those_behind_it_join_as_one_group() -> None:
    """Seven that arrive while an eighth has its last token to run prefill in one step with it."""
    sched = _scheduler()
    _submit(sched, "a", 120)
    sched.schedule()
    sched.row_progressed(RowKey("a", 0), 119)
    _submit(sched, "bcdefgh", 120)
    plan = sched.schedule()
    assert "".join(each.key.request_id for each in plan.insert) == "bcdefgh"
    assert plan.steps[0].prefill_step == CAP
    sched.check_integrity()


def test_a_group_is_bounded() -> None:
    """One step takes so many tokens and no more; who does not fit waits its turn."""
    sched = _scheduler()
    names = "abcdefghijk"
    _submit(sched, names, CAP)
    assert _inserted(sched) == names[: GROUP_TOKENS // CAP]


def test_prompts_of_several_steps_form_no_group() -> None:
    """Two long prompts would both end late: the second waits for the first."""
    sched = _scheduler()
    _submit(sched, "ab", CAP + 1)
    assert _inserted(sched) == "a"


def test_a_running_stream_keeps_groups_from_forming() -> None:
    """While somebody decodes, prompts that take more than one step run one after the other."""
    sched = _scheduler()
    _submit(sched, "a", 10)
    sched.schedule()
    sched.row_progressed(RowKey("a", 0), 10)
    _submit(sched, "bc", 200)
    assert _inserted(sched) == "b"
