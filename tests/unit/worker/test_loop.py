"""The engine loop over fake lanes: what is emitted, and who pays for a fault."""

from __future__ import annotations

import pytest

from omlxd.errors import EngineFailed, MemoryExceeded, RequestInvalid
from omlxd.ipc.messages import CacheCommand, LiveSettings
from omlxd.worker.commands import Cancel, Configure, Stop
from omlxd.worker.loop import REST_AFTER_S, EngineBroken
from omlxd.worker.ports import ResolvedSampling, RowUsage
from tests.fakes.fake_lane import (
    BREAKS_DECODE,
    BREAKS_INSERT,
    BREAKS_ITSELF,
    BREAKS_PREFILL,
    VOCABULARY,
    expected,
)
from tests.fakes.fake_prefixes import FakePrefixes
from tests.support.loop_rig import LoopRig

LIVE = LiveSettings()


def test_all_tokens_of_a_step_come_in_one_call() -> None:
    """Two rows that decode together are reported together, token by token."""
    rig = LoopRig()
    rig.submit("a", [1, 2])
    rig.submit("b", [3])
    rig.run(ends=2)
    assert [len(step) for step in rig.steps] == [2, 2, 2]
    assert rig.tokens("a") == expected([1, 2], 3)
    assert rig.tokens("b") == expected([3], 3)


def test_a_row_ends_at_its_last_allowed_token() -> None:
    """`max_tokens` is exact, and the last token says "length"."""
    rig = LoopRig()
    rig.submit("a", [1], max_tokens=5)
    rig.run(ends=1)
    assert [step[0].finish for step in rig.steps] == [None] * 4 + ["length"]


def test_a_stop_token_ends_its_row() -> None:
    """It is reported with the reason, and wins over the length."""
    rig = LoopRig()
    second = expected([1, 2], 2)[1]
    rig.submit("a", [1, 2], max_tokens=2, stop_tokens=frozenset({second}))
    rig.run(ends=1)
    assert [step[0].finish for step in rig.steps] == [None, "stop"]


def test_a_request_is_scheduled_once_and_each_row_tells_where_its_prompt_came_from() -> None:
    """Three choices make one scheduling event and three usages, with their first tokens."""
    rig = LoopRig()
    rig.submit("a", [1, 2], [1, 2], [1, 2])
    rig.run(ends=3)
    assert rig.scheduled == ["a"]
    assert rig.usages == [RowUsage("a", index, computed=2) for index in range(3)]


def test_token_ids_the_model_does_not_have_are_refused() -> None:
    """They would read outside the model's arrays; neighbours notice nothing."""
    rig = LoopRig()
    rig.submit("prompt", [1, VOCABULARY])
    rig.submit("bias", [1], sampling=ResolvedSampling(logit_bias={-1: 1.0}))
    rig.submit("good", [1])
    rig.run(ends=3)
    assert {name: error.param for name, error in rig.failed.items()} == {
        "prompt": "prompt",
        "bias": "logit_bias",
    }
    assert all(isinstance(error, RequestInvalid) for error in rig.failed.values())
    assert rig.tokens("good") == expected([1], 3)


def test_a_cancelled_stream_stops_within_a_step() -> None:
    """After the cancel at most the tokens of the step under way come."""
    rig = LoopRig()
    rig.submit("gone", [1], max_tokens=1000)
    rig.submit("stays", [2], max_tokens=20)
    rig.on_step = lambda: rig.inbox.put(Cancel("gone", None)) if len(rig.steps) == 4 else None
    rig.run(ends=1)
    assert len(rig.tokens("gone")) == 4
    assert rig.tokens("stays") == expected([2], 20)
    assert rig.failed == {}


def test_a_request_cancelled_in_the_queue_never_starts() -> None:
    """Its place in the line closes."""
    rig = LoopRig(max_rows=1)
    rig.submit("runs", [1], max_tokens=5)
    rig.submit("gone", [2])
    rig.submit("next", [3])
    rig.on_step = lambda: rig.inbox.put(Cancel("gone", None))
    rig.run(ends=2)
    assert rig.scheduled == ["runs", "next"]


def test_a_request_cancelled_in_prefill_frees_its_slot() -> None:
    """The next one starts although thousands of prompt tokens were left."""
    rig = LoopRig(max_rows=2, cap=8)
    rig.submit("stream", [1], max_tokens=30)
    rig.submit("huge", [2] * 10_000)
    rig.submit("next", [3])
    rig.on_step = lambda: rig.inbox.put(Cancel("huge", None)) if len(rig.steps) == 3 else None
    rig.run(ends=2)
    assert rig.tokens("huge") == []
    assert rig.tokens("next") == expected([3], 3)


def test_one_choice_can_be_cancelled_alone() -> None:
    """A stop string in one choice does not end the others."""
    rig = LoopRig()
    rig.submit("a", [1], [2], max_tokens=6)
    rig.on_step = lambda: rig.inbox.put(Cancel("a", 0)) if len(rig.steps) == 2 else None
    rig.run(ends=1)
    assert len(rig.tokens("a", 0)) == 2
    assert rig.tokens("a", 1) == expected([2], 6)


def test_a_row_whose_sampler_fails_fails_its_request_only() -> None:
    """None of its tokens of that step is reported; the neighbour loses nothing."""
    rig = LoopRig()
    rig.submit("bad", [BREAKS_ITSELF])
    rig.submit("good", [1], max_tokens=10)
    rig.run(ends=2)
    assert isinstance(rig.failed["bad"], EngineFailed)
    assert "sampler" in rig.failed["bad"].message
    assert rig.tokens("bad") == []
    assert rig.tokens("good") == expected([1], 10)


def test_a_row_that_cannot_be_inserted_fails_alone() -> None:
    """Even when another choice of its request is in a lane already."""
    rig = LoopRig()
    rig.submit("bad", [1], [BREAKS_INSERT], [2])
    rig.submit("good", [1])
    rig.run(ends=2)
    assert "no such parameters" in rig.failed["bad"].message
    assert rig.tokens("bad") == []
    assert rig.tokens("good") == expected([1], 3)


def test_the_culprit_of_a_broken_prefill_is_found_by_running_suspects_alone() -> None:
    """The neighbour that prefilled beside it is run again and ends well."""
    rig = LoopRig()
    rig.submit("stream", [1], max_tokens=12)

    def join_together() -> None:
        if len(rig.steps) == 1:
            rig.submit("innocent", [2, 2])
            rig.submit("culprit", [BREAKS_PREFILL])

    rig.on_step = join_together
    rig.run(ends=3)
    assert list(rig.failed) == ["culprit"]
    assert rig.tokens("innocent") == expected([2, 2], 3)
    assert rig.tokens("stream") == expected([1], 12)


def test_a_broken_decode_of_one_request_fails_that_one() -> None:
    """The engine lives and serves the next."""
    rig = LoopRig()
    rig.submit("bad", [BREAKS_DECODE])
    rig.run(ends=1)
    rig.submit("good", [1])
    rig.run(ends=1)
    assert list(rig.failed) == ["bad"]
    assert rig.tokens("good") == expected([1], 3)


def test_a_broken_decode_that_is_nobodys_ends_the_engine() -> None:
    """Every request is failed first, the waiting ones too."""
    rig = LoopRig(max_rows=2)
    rig.submit("a", [BREAKS_DECODE])
    rig.submit("b", [1])
    rig.submit("waiting", [2])
    with pytest.raises(EngineBroken, match="decode"):
        rig.run(ends=9)
    assert set(rig.failed) == {"a", "b", "waiting"}


def test_three_broken_steps_in_a_row_mean_that_the_model_is_broken() -> None:
    """One request after the other failing is not three bad requests."""
    rig = LoopRig(max_rows=1)
    for name in "abc":
        rig.submit(name, [BREAKS_PREFILL])
    with pytest.raises(EngineBroken, match="prefill"):
        rig.run(ends=9)
    assert list(rig.failed) == ["a", "b", "c"]


def test_bad_requests_with_good_steps_between_do_not_end_the_engine() -> None:
    """Only faults without a good step between say that the model is broken."""
    rig = LoopRig(max_rows=1)
    for name in "abcde":
        rig.submit(f"bad {name}", [BREAKS_DECODE])
        rig.submit(f"good {name}", [1])
    rig.run(ends=10)
    assert len(rig.failed) == 5
    assert all(rig.tokens(f"good {name}") == expected([1], 3) for name in "abcde")


def test_a_prompt_that_memory_never_holds_is_refused() -> None:
    """The refusal carries the scheduler's numbers and forgets the request."""
    rig = LoopRig(budget=256)
    rig.submit("big", [1] * 300)
    rig.submit("small", [1])
    rig.run(ends=2)
    assert isinstance(rig.failed["big"], MemoryExceeded)
    assert rig.tokens("small") == expected([1], 3)


def test_a_preempted_row_goes_on_where_it_was() -> None:
    """It is run again with its output so far, and its stream shows no seam."""
    rig = LoopRig(budget=4 * 768)
    rig.submit("old", [1], max_tokens=2000)
    rig.submit("young", [2], max_tokens=1800)
    rig.run(ends=2)
    insertions = [len(output) for name, output in rig.lanes[0].inserted if name == "young"]
    assert insertions[0] == 0
    assert len(insertions) > 1
    assert insertions[1] > 0
    assert rig.tokens("old") == expected([1], 2000)
    assert rig.tokens("young") == expected([2], 1800)
    assert rig.scheduled == ["old", "young"]
    assert len(rig.usages) == 2


def test_stats_come_about_once_a_second_while_busy() -> None:
    """Nine tokens at a quarter second each are two reports, with the rates since the last."""
    rig = LoopRig()
    rig.second_per_token = 0.25
    rig.submit("a", [1], max_tokens=9)
    rig.run(ends=1)
    busy = [each for each in rig.stats if each.running]
    assert [each.decode_tps for each in busy] == [pytest.approx(4), pytest.approx(4)]
    assert busy[0].rows[0].status == "decode"
    assert (busy[0].active_bytes, busy[0].cache_bytes) == (1000, 10)


def test_coming_to_rest_is_reported_at_once() -> None:
    """Commands that change nothing do not make the engine busy again."""
    rig = LoopRig()
    rig.inbox.put(Cancel("nobody", None))
    rig.inbox.put(Configure(LIVE))
    rig.inbox.put(Stop())
    rig.loop.run()
    assert [each.running for each in rig.stats] == [0]
    rig.submit("a", [1])
    rig.on_report = lambda: rig.inbox.put(Stop())
    rig.loop.run()
    assert [each.running for each in rig.stats] == [0, 0]
    assert rig.device.releases == 0
    assert rig.tokens("a") == expected([1], 3)


def test_memory_is_given_back_a_moment_after_the_last_request() -> None:
    """Once per rest, and reported again, since the figures have changed."""
    rig = LoopRig()
    rig.submit("a", [1])

    def rest_on() -> None:
        rig.now += REST_AFTER_S
        if rig.device.releases:
            rig.inbox.put(Stop())

    rig.on_report = rest_on
    rig.loop.run()
    assert rig.device.releases == 1
    assert [each.running for each in rig.stats] == [0, 0, 0]  # at the start, the end, and after


@pytest.mark.parametrize(
    ("command", "freed", "releases"),
    [(Configure(LIVE), 400, 1), (Configure(LIVE), 0, 0), (CacheCommand(1, "clear"), 400, 1)],
)
def test_memory_of_blocks_that_went_is_given_back(
    command: Configure | CacheCommand, freed: int, releases: int
) -> None:
    """Between two steps, where other processes are short of it and no rest may come for long."""

    class Shrinking(FakePrefixes):
        def configure(self, live: LiveSettings) -> None:
            rig.device.active_bytes -= freed

        def command(self, command: CacheCommand) -> None:
            rig.device.active_bytes -= freed

    rig = LoopRig(prefixes=Shrinking())
    rig.submit("a", [1], max_tokens=30)
    rig.on_step = lambda: rig.inbox.put(command) if len(rig.steps) == 5 else None
    rig.run(ends=1)
    assert rig.device.releases == releases


def test_new_settings_take_effect_between_two_steps() -> None:
    """A raised bound lets a waiting request in while another runs."""
    rig = LoopRig(max_rows=1)
    rig.submit("runs", [1], max_tokens=30)
    rig.submit("waits", [2])
    raised = LiveSettings(max_concurrent_requests=2)
    rig.on_step = lambda: rig.inbox.put(Configure(raised)) if len(rig.steps) == 5 else None
    rig.run(ends=2)
    assert any(len(step) == 2 for step in rig.steps)
