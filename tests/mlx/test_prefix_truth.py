"""Whatever is reused, the tokens are those of a cold run alone; and it is reused, to the token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from omlxd.ipc.messages import LiveSettings
from omlxd.worker.generators import BatchLane
from omlxd.worker.lanes import Start, StepOutcome
from omlxd.worker.lm_load import probe_abilities
from omlxd.worker.ports import RowJob
from omlxd.worker.reuse import Reuse
from tests.support.engine import loaded, make_llama4, solo
from tests.support.prefixes import (
    BLOCK,
    EVERY_CLASS,
    RECURRENT,
    Truth,
    tokens,
)

pytestmark = pytest.mark.mlx

# Where a prompt stops decides which states are taken: on a boundary, one beside it, in the middle.
LENGTHS = (2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 2 * BLOCK + 2, 5 * BLOCK + 7)


@pytest.fixture(scope="module")
def models(tiny_models: Path) -> Path:
    """The folder of all tiny models, one with chunked caches among them."""
    make_llama4(tiny_models)
    return tiny_models


def boundary(length: int) -> int:
    return length // BLOCK * BLOCK


@pytest.mark.parametrize("name", EVERY_CLASS)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_very_same_prompt_runs_one_token(models: Path, name: str, length: int) -> None:
    """All but the last token is restored, for every class, wherever the prompt ends."""
    with Truth(models / name) as truth:
        truth.ask("first", tokens(length, 1))
        truth.ask("again", tokens(length, 1))
        assert (truth.cached("first"), truth.cached("again")) == (0, length - 1)
        match = truth.usage("again").match
        assert match is not None
        assert (match.donor, match.why_not_more) == ("first", "exact prompt")


@pytest.mark.parametrize("name", EVERY_CLASS)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_conversation_goes_on_where_it_was(models: Path, name: str, length: int) -> None:
    """Every turn restores all of the turns before it: prompts, replies and tails."""
    prompt, told = tokens(length, 2), 0
    with Truth(models / name) as truth:
        for turn, count in enumerate((9, 1, BLOCK + 3, 2 * BLOCK)):
            reply = truth.ask(f"turn {turn}", prompt, count)
            if turn:
                # A row that runs alone does not run the last token of its reply.
                assert truth.cached(f"turn {turn}") == told - (name == "tiny-llama4")
            told = len(prompt) + count
            prompt = [*prompt, *reply, *tokens(5 + turn, turn)]


@pytest.mark.parametrize("name", EVERY_CLASS)
@pytest.mark.parametrize("at", [5, BLOCK, BLOCK + 1, 40, 63, 64, 65, 100, 149])
def test_a_prompt_that_parts_from_another_reuses_what_is_common(
    models: Path, name: str, at: int
) -> None:
    """To the token where everything is held; back to a state that was kept where there are some."""
    prompt = tokens(150, 3)
    with Truth(models / name) as truth:
        truth.ask("first", prompt)
        truth.ask("parts", [*prompt[:at], *tokens(30, 4)])
        cached = truth.cached("parts")
        match = truth.usage("parts").match
        assert match is not None
        assert match.diverged_at == at
        if name in RECURRENT:
            assert cached == next(kept for kept in (149, 144, 0) if kept <= at)
        else:
            assert cached == at


@pytest.mark.parametrize("name", EVERY_CLASS)
def test_a_prompt_and_its_reply_can_be_sent_again_as_they_are(models: Path, name: str) -> None:
    """Nothing is new but the last token; states go back to the last one before it."""
    prompt = tokens(70, 5)
    with Truth(models / name) as truth:
        reply = truth.ask("first", prompt, 20)
        truth.ask("again", [*prompt, *reply])
        cached = truth.cached("again")
        assert cached == (80 if name in RECURRENT else 89)


@pytest.mark.parametrize("name", EVERY_CLASS)
def test_warm_and_cold_rows_share_a_batch(models: Path, name: str) -> None:
    """Rows restored at different depths join cold ones, and what comes of it is reused again."""
    warm = [tokens(length, 10 + length) for length in (40, 75, 130)]
    with Truth(models / name) as truth:
        for index, prompt in enumerate(warm):
            truth.ask(f"w{index}", prompt)
        asked = [[*prompt, *tokens(9, 6)] for prompt in warm] + [tokens(50, 7), tokens(33, 8)]
        names = [f"r{index}" for index in range(len(asked))]
        for each, prompt in zip(names, asked, strict=True):
            truth.submit(each, prompt, 25)
        truth.check(*names)
        assert [truth.cached(each) for each in names[3:]] == [0, 0]
        for each, prompt in zip(names, warm, strict=False):
            assert truth.cached(each) == len(prompt) - (name in RECURRENT)
        for each, prompt in zip(names, asked, strict=True):
            more = [*prompt, *truth.rig.ids(each), 9, 8, 7]
            truth.ask(f"{each} again", more)
            assert truth.cached(f"{each} again") >= len(more) - 4


@pytest.mark.parametrize("name", EVERY_CLASS)
def test_a_prompt_cancelled_on_its_way_starts_there_when_sent_again(
    models: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What was computed is kept, and a stream beside it notices nothing."""
    huge = tokens(1500, 9)
    live = LiveSettings(hot_bytes=64 << 20, prefill_step_tokens=48)
    reached = 0

    def on_step(reuse: Reuse, outcome: StepOutcome) -> None:
        nonlocal reached
        for progress in outcome.progress:
            if progress.key.request_id == "huge" and reached < 600:
                reached = progress.computed_tokens
                if reached >= 600:
                    truth.rig.engine.cancel("huge")

    spy(monkeypatch, "after_step", on_step)
    with Truth(models / name, live) as truth:
        names = ["again"]
        if name != "tiny-llama4":  # which runs one at a time
            names.append("stream")
            truth.submit("stream", tokens(20, 10), 60)
        truth.submit("huge", huge)
        truth.rig.wait_for(lambda: reached >= 600)
        truth.submit("again", huge)
        truth.check(*names)
        assert truth.rig.ids("huge") == []
        assert truth.cached("again") == reached


@pytest.mark.parametrize("name", EVERY_CLASS)
def test_a_stream_cancelled_in_its_reply_keeps_prompt_and_reply(models: Path, name: str) -> None:
    """A stop string or a client that goes away costs nothing of what was computed."""
    prompt = tokens(45, 11)
    with Truth(models / name) as truth:
        seen: list[int] = []

        def cancel(token: object) -> None:
            seen.append(1)
            if len(seen) == 21:
                truth.rig.engine.cancel("gone")

        truth.rig.on_token = cancel
        truth.submit("gone", prompt, 4000)
        truth.rig.wait_for(lambda: len(seen) >= 21)
        truth.rig.on_token = lambda token: None
        said = solo(models / name, prompt, 21)[0]
        truth.ask("goes on", [*prompt, *said, 5, 6, 7])
        assert truth.cached("goes on") >= boundary(45 + 20)


@pytest.mark.parametrize("name", EVERY_CLASS)
def test_rows_sent_back_to_the_line_are_restored(
    models: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Preempted rows continue from what they had computed, and no stream shows it."""
    if name == "tiny-llama4":
        pytest.skip("one row at a time: nobody is sent back")
    cost = probe_abilities(loaded(models / name)).cost
    monkeypatch.setattr("omlxd.sched.scheduler.HORIZON_TOKENS", 0)
    hot = 32 << 20
    begun: list[tuple[str, int]] = []
    insert = BatchLane.insert

    def spied(self: BatchLane, job: RowJob, output: Sequence[int], *start: Start) -> None:
        begun.append((job.request_id, start[0].computed_tokens if start else 0))
        insert(self, job, output, *start)

    monkeypatch.setattr(BatchLane, "insert", spied)
    with Truth(models / name) as truth:
        weights = truth.rig.engine.facts.result().weights_bytes
        spare = 2 * cost.row_bytes(256) + cost.row_bytes(256) // 2
        share = weights + hot + spare
        truth.rig.engine.configure(LiveSettings(hot_bytes=hot, memory_share_bytes=share))
        truth.submit("old", tokens(200, 12), 100)
        truth.submit("young", tokens(190, 13), 100)
        truth.check("old", "young")
        first, second = [restored for key, restored in begun if key == "young"]
        assert (first, second > 190) == (0, True)


def spy(monkeypatch: pytest.MonkeyPatch, method: str, seen: Callable[..., None]) -> None:
    """Have `seen` called on the engine thread before each call of a method of `Reuse`."""
    real = getattr(Reuse, method)

    def spied(self: Reuse, *args: Any, **kwargs: Any) -> Any:
        seen(self, *args, **kwargs)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Reuse, method, spied)
