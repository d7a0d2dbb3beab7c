"""Rows begin with what is stored, are stored as they run, and wait for each other's prompts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omlxd.ipc.messages import CacheCommand, LiveSettings
from omlxd.worker.commands import Cancel, Configure, Later
from omlxd.worker.ports import RowUsage
from tests.fakes.fake_lane import BREAKS_DECODE, BREAKS_INSERT, BREAKS_PREFILL, expected
from tests.fakes.fake_prefixes import BLOCK, FakePrefixes
from tests.support.loop_rig import LoopRig

COMMON = [7] * (5 * BLOCK)


def usage(rig: LoopRig, name: str) -> RowUsage:
    return next(each for each in rig.usages if each.request_id == name)


def starts(rig: LoopRig, name: str) -> list[int]:
    """Tokens that each run of a row began with."""
    return [
        start.computed_tokens
        for lane in rig.lanes.values()
        for key, start in lane.starts
        if key == name
    ]


def once(act: Callable[[], None], when: Callable[[], bool] = lambda: True) -> Callable[[], None]:
    done: list[bool] = []

    def check() -> None:
        if not done and when():
            done.append(True)
            act()

    return check


def test_a_row_begins_with_what_another_left() -> None:
    """Prompt and reply of the first are not run again, and its usage says so."""
    cache = FakePrefixes()
    rig = LoopRig(prefixes=cache)
    rig.submit("first", [1, 2, 3])
    rig.run(ends=1)
    more = [1, 2, 3, *rig.tokens("first"), 5, 6]
    rig.submit("next", more)
    rig.run(ends=1)
    assert rig.tokens("next") == expected(more, 3)
    assert starts(rig, "next") == [6]
    assert (usage(rig, "next").cached_ram, usage(rig, "next").computed) == (6, 2)
    assert usage(rig, "next").match is not None
    assert all(row.is_closed for row in cache.rows)


def test_the_very_same_prompt_runs_its_last_token() -> None:
    """One token has to run to draw the next."""
    rig = LoopRig(prefixes=FakePrefixes())
    for name in ("first", "again"):
        rig.submit(name, COMMON)
        rig.run(ends=1)
    assert starts(rig, "again") == [len(COMMON) - 1]
    assert rig.tokens("again") == expected(COMMON, 3)


def test_a_row_cancelled_in_prefill_leaves_what_it_has_computed() -> None:
    """Sent again, it goes on from there."""
    cache = FakePrefixes()
    rig = LoopRig(prefixes=cache, cap=8)
    rig.submit("stream", [1], max_tokens=40)
    rig.submit("huge", [2] * 1000)
    rig.on_step = once(lambda: rig.inbox.put(Cancel("huge", None)), lambda: len(rig.steps) == 9)
    rig.run(ends=1)
    [left] = [each for each in cache.stored if each[0] == 2]
    assert 0 < len(left) < 1000
    rig.submit("again", [2] * 1000)
    rig.run(ends=1)
    assert starts(rig, "again") == [len(left)]


def test_a_row_sent_back_to_the_line_goes_on_from_its_own_caches() -> None:
    """It is stored when it leaves and restored when it comes back, output and all."""
    rig = LoopRig(budget=4 * 768, prefixes=FakePrefixes())
    rig.submit("old", [1], max_tokens=2000)
    rig.submit("young", [2], max_tokens=1800)
    rig.run(ends=2)
    first, second, *_ = starts(rig, "young")
    assert (first, second > 200) == (0, True)
    assert rig.tokens("young") == expected([2], 1800)
    assert usage(rig, "young") == RowUsage(
        "young", 0, computed=1, match=usage(rig, "young").match
    ), "where its prompt came from is told of its first run"


def test_rows_of_a_step_that_broke_are_not_stored() -> None:
    """Nobody knows what their caches hold; those of other rows of the step are fine."""
    cache = FakePrefixes()
    rig = LoopRig(prefixes=cache)
    rig.submit("stream", [1], max_tokens=12)

    def join_together() -> None:
        rig.submit("innocent", [2, 2])
        rig.submit("culprit", [BREAKS_PREFILL, 1])

    rig.on_step = once(join_together)
    rig.run(ends=3)
    assert list(rig.failed) == ["culprit"]
    assert rig.tokens("innocent") == expected([2, 2], 3)
    assert not any(each[0] == BREAKS_PREFILL for each in cache.stored)
    assert any(each[0] == 1 for each in cache.stored)
    assert all(row.is_closed for row in cache.rows)


@pytest.mark.parametrize("fault", [BREAKS_DECODE, BREAKS_INSERT])
def test_a_row_that_fails_closes_its_place_in_the_cache(fault: int) -> None:
    """Whether it broke in its lane or never came into one."""
    cache = FakePrefixes()
    rig = LoopRig(prefixes=cache)
    rig.submit("bad", [fault])
    rig.run(ends=1)
    rig.submit("good", [1])
    rig.run(ends=1)
    assert list(rig.failed) == ["bad"]
    assert all(row.is_closed for row in cache.rows)
    assert not any(each[1:] for each in cache.stored if each[0] == fault)


def test_a_row_waits_for_its_reads_and_others_pass() -> None:
    """It counts as waiting, and goes on from what was read."""
    cache = FakePrefixes()
    cache.on_disk = [COMMON]
    rig = LoopRig(prefixes=cache, max_rows=1)
    rig.submit("reads", [*COMMON, 1])
    rig.submit("passes", [5])
    rig.on_step = once(lambda: rig.inbox.put(Later(cache.finish_reads)))
    rig.run(ends=2)
    assert rig.scheduled == ["passes", "reads"]
    assert starts(rig, "reads") == [len(COMMON)]
    assert rig.tokens("reads") == expected([*COMMON, 1], 3)


def test_reads_alone_let_the_loop_sleep() -> None:
    """It waits for its inbox, and goes on when the read has ended."""
    cache = FakePrefixes()
    cache.on_disk = [COMMON]
    rig = LoopRig(prefixes=cache)
    rig.submit("reads", [*COMMON, 1])
    rig.inbox.put(Later(cache.finish_reads))
    rig.run(ends=1)
    assert starts(rig, "reads") == [len(COMMON)]


def test_a_row_cancelled_while_it_waits_for_its_reads_is_forgotten() -> None:
    """What arrives for it later finds nobody."""
    cache = FakePrefixes()
    cache.on_disk = [COMMON]
    rig = LoopRig(prefixes=cache)
    rig.submit("gone", [*COMMON, 1])
    rig.inbox.put(Cancel("gone", None))
    rig.inbox.put(Later(cache.finish_reads))
    rig.submit("next", [5])
    rig.run(ends=1)
    assert rig.scheduled == ["next"]
    assert all(row.is_closed for row in cache.rows)


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_common_prefix_is_run_once(recurrent: bool) -> None:
    """The others come in when the first has passed it, in the order they came."""
    cache = FakePrefixes(recurrent=recurrent)
    rig = LoopRig(prefixes=cache, cap=8)
    names = [f"r{number}" for number in range(4)]
    for number, name in enumerate(names):
        rig.submit(name, [*COMMON, 50 + number, number])
    rig.run(ends=4)
    assert rig.scheduled == names
    assert [starts(rig, name) for name in names[1:]] == [[len(COMMON)]] * 3
    for number, name in enumerate(names):
        assert rig.tokens(name) == expected([*COMMON, 50 + number, number], 3)


def test_a_short_common_prefix_is_not_waited_for() -> None:
    """Less than two blocks are run beside."""
    rig = LoopRig(prefixes=FakePrefixes(), cap=4)
    rig.submit("a", [7] * 4 + [1] * 40)
    rig.submit("b", [7] * 4 + [2] * 40)
    rig.run(ends=2)
    assert starts(rig, "b") == [0]


def test_rows_that_wait_go_on_when_the_first_is_cancelled() -> None:
    """The next takes its place, from where it had come to."""
    common, cache = 2 * COMMON, FakePrefixes()
    rig = LoopRig(prefixes=cache, cap=8)
    rig.submit("stream", [1], max_tokens=30)

    def on_step() -> None:
        if len(rig.steps) == 1:
            for number in range(3):
                rig.submit(f"r{number}", [*common, number])
        elif len(rig.steps) == 3:
            rig.inbox.put(Cancel("r0", None))

    rig.on_step = on_step
    rig.run(ends=3)
    assert starts(rig, "r0") == [0]
    assert 0 < starts(rig, "r1")[0] < len(common)
    assert starts(rig, "r2") == [len(common)]
    for number in (1, 2):
        assert rig.tokens(f"r{number}") == expected([*common, number], 3)
    assert all(row.is_closed for row in cache.rows)


def test_rows_that_wait_for_one_that_fails_find_out_for_themselves() -> None:
    """The fault of the first is not theirs: each is run."""
    cache = FakePrefixes()
    rig = LoopRig(prefixes=cache, cap=8)
    rig.submit("stream", [1], max_tokens=30)

    def join() -> None:
        for number in range(2):
            rig.submit(f"r{number}", [BREAKS_PREFILL, *COMMON, number])

    rig.on_step = once(join)
    rig.run(ends=3)
    assert list(rig.failed) == ["r0", "r1"]
    assert starts(rig, "r1") == [0]
    assert rig.tokens("stream") == expected([1], 30)
    assert all(row.is_closed for row in cache.rows)


def test_a_cache_that_is_turned_off_is_left_alone() -> None:
    """Rows that run, wait or come later start at their first token."""
    cache = FakePrefixes()
    rig = LoopRig(prefixes=cache, cap=8)
    rig.submit("a", [*COMMON, 1], max_tokens=20)
    rig.submit("b", [*COMMON, 2])
    rig.inbox.put(Configure(LiveSettings(hot_bytes=0)))
    rig.submit("c", [*COMMON, 3])
    rig.run(ends=3)
    assert [starts(rig, name) for name in "abc"] == [[0], [0], [0]]
    assert cache.stored == []
    assert all(row.is_closed for row in cache.rows)


def test_rows_that_run_when_the_engine_ends_are_stored() -> None:
    """Their clients come back after the restart."""
    cache = FakePrefixes()
    rig = LoopRig(prefixes=cache)
    rig.submit("runs", [1, 2], max_tokens=1000)
    rig.ends_left = 1
    rig.on_step = lambda: rig._count(1) if len(rig.steps) == 20 else None
    rig.loop.run()
    assert max(cache.stored, key=len) == [1, 2, *expected([1, 2], 20)]


def test_commands_reach_the_cache() -> None:
    """In the order of the inbox."""
    cache = FakePrefixes()
    rig = LoopRig(prefixes=cache)
    rig.submit("first", COMMON)
    rig.run(ends=1)
    rig.inbox.put(CacheCommand(1, "clear_hot"))
    rig.submit("again", COMMON)
    rig.run(ends=1)
    assert starts(rig, "again") == [0]
