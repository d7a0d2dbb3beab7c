"""Requests that come together compute what they have in common once, and get their own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omlxd.ipc.messages import LiveSettings
from omlxd.worker.lanes import StepOutcome
from omlxd.worker.reuse import Reuse
from tests.support.engine import make_llama4
from tests.support.prefixes import BLOCK, EVERY_CLASS, Truth, tokens

pytestmark = pytest.mark.mlx

COMMON = tokens(10 * BLOCK + 5, 31)
LIVE = LiveSettings(hot_bytes=64 << 20, prefill_step_tokens=64, max_concurrent_requests=16)


@pytest.fixture(scope="module")
def models(tiny_models: Path) -> Path:
    make_llama4(tiny_models)
    return tiny_models


@pytest.mark.parametrize("name", EVERY_CLASS)
def test_sixteen_chats_with_one_system_prompt(models: Path, name: str) -> None:
    """Each gets its own answer; the system prompt is run by the first of them alone."""
    prompts = {f"r{n}": [*COMMON, *tokens(3 + n, 40 + n)] for n in range(16)}
    with Truth(models / name, LIVE) as truth:
        for each, prompt in prompts.items():
            truth.submit(each, prompt, 8)
        truth.check(*prompts)
        cached = [truth.cached(each) for each in prompts]
    assert cached[0] == 0
    assert all(10 * BLOCK <= each <= len(COMMON) for each in cached[1:]), cached


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-qwen3-next"])
def test_choices_of_one_request_run_their_prompt_once(models: Path, name: str) -> None:
    """Four choices cost one prompt and four ends of it."""
    with Truth(models / name, LIVE) as truth:
        rig = truth.rig
        rig.submit_rows([rig.job("a", COMMON, index=index, max_tokens=8) for index in range(4)])
        rig.wait_for(lambda: sum(each.finish is not None for each in rig.tokens) == 4)
        truth.ask("b", COMMON, 8)
        assert all(rig.ids("a", index) == rig.ids("b") for index in range(4))
        usages = [each for each in rig.usages if each.request_id == "a"]
    *others, first = sorted(each.computed for each in usages)
    assert first == len(COMMON)
    assert all(1 <= computed <= 5 for computed in others)


@pytest.mark.parametrize("how", ["cancelled", "ended"])
def test_rows_that_waited_for_one_that_goes_away_go_on(
    models: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The first is cancelled half way: the next takes over from there, the others wait for it."""
    at: list[int] = []

    def after_step(reuse: Reuse, outcome: StepOutcome, *rest: Any) -> None:
        for progress in outcome.progress:
            if progress.key.request_id == "r0" and not at and how == "cancelled":
                at.append(progress.computed_tokens)
                truth.rig.engine.cancel("r0")
        real(reuse, outcome, *rest)

    real = Reuse.after_step
    monkeypatch.setattr(Reuse, "after_step", after_step)
    prompts = {f"r{n}": [*COMMON, *tokens(3 + n, 50 + n)] for n in range(4)}
    names = list(prompts)[how == "cancelled" :]
    with Truth(models / "tiny-llama", LIVE) as truth:
        for each, prompt in prompts.items():
            truth.submit(each, prompt, 8)
        truth.check(*names)
        cached = [truth.cached(each) for each in names]
    assert cached[0] == (at[0] if at else 0)
    assert all(each >= 10 * BLOCK for each in cached[1:]), cached


def test_a_prompt_that_comes_while_another_runs_joins_at_what_that_has_computed(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two of its pauses too: what is needed is cut at that moment."""
    seen: list[int] = []

    def after_step(reuse: Reuse, outcome: StepOutcome, *rest: Any) -> None:
        for progress in outcome.progress:
            if progress.key.request_id == "first" and not seen and progress.computed_tokens > 200:
                seen.append(progress.computed_tokens)
                truth.submit("second", [*long[:190], *tokens(9, 60)])
        real(reuse, outcome, *rest)

    real = Reuse.after_step
    monkeypatch.setattr(Reuse, "after_step", after_step)
    long = tokens(900, 61)
    with Truth(models / "tiny-llama", LIVE) as truth:
        truth.submit("first", long)
        truth.rig.wait_for(lambda: bool(seen))
        truth.check("first", "second")
        assert truth.cached("second") >= 190 // BLOCK * BLOCK
