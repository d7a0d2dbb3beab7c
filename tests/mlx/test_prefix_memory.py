"""What the hot tier holds is what MLX holds for it, and the settings in force decide how much."""

from __future__ import annotations

import gc
import time
from functools import partial
from pathlib import Path
from typing import Literal

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from omlxd.ipc.messages import CacheCommand, CacheDone, CacheEvicted, LiveSettings
from omlxd.worker.lanes import RowCaches
from omlxd.worker.pages import Pages
from omlxd.worker.prefix_cache import PrefixCache
from tests.support.engine import loaded
from tests.support.prefixes import BLOCK, HOT, Truth, tokens

pytestmark = pytest.mark.mlx

ROUNDS = 1000
PROMPT = tokens(100, 71)
KEPT = 7 + 1  # entries of a prompt of 100 tokens and a reply of 12: blocks, and the prompt's tail


@pytest.fixture(autouse=True)
def frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omlxd.worker.prefix_report.INTERVAL_S", 0.02)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-qwen3-next"])
def test_memory_in_use_is_the_sum_of_what_is_kept(tiny_models: Path, name: str) -> None:
    """After a thousand rounds of storing and evicting no buffer is held that is not counted."""
    model = loaded(tiny_models / name)
    pages = Pages.inspect(model)
    assert isinstance(pages, Pages)
    cache = PrefixCache(
        pages,
        layout=pages.layout(BLOCK),
        namespace=bytes(32),
        cold_folder=None,
        post=lambda act: act(),
        send=lambda frame: None,
        prefill_token_s=lambda: None,
        clock=time.monotonic,
    )
    cache.configure(LiveSettings(hot_bytes=1 << 20))
    caches = make_prompt_cache(model)
    model(mx.array([PROMPT]), cache=caches)
    mx.eval([each.state for each in caches])
    gc.collect()
    mx.synchronize()
    before = mx.get_active_memory()
    evicted = 0
    for number in range(ROUNDS):
        row = cache.open(f"r{number}")
        # The tokens are other ones each time; what the caches hold does not depend on them here.
        asked = tokens(len(PROMPT), number % 100)
        row.seek([*asked, 1])
        row.restore()
        row.store(partial(RowCaches, asked, caches), at_point=True, growing=True)
        row.close()
        evicted += sum(each.blocks for each in cache.hot.take_evicted())
    cache.core.check_integrity()
    gc.collect()
    mx.synchronize()
    arrays = sum(len(cache.hot[key].arrays) for key in cache.hot)
    grown = mx.get_active_memory() - before
    assert evicted > ROUNDS
    assert cache.hot.nbytes == cache.core.stats().hot_bytes <= 1 << 20
    assert cache.hot.nbytes <= grown <= cache.hot.nbytes + arrays * (16 << 10)
    cache.configure(LiveSettings(hot_bytes=0))
    assert len(cache.hot) == 0


def test_less_ram_evicts_at_once_and_none_keeps_nothing(tiny_models: Path) -> None:
    """While the engine runs; what went is told with its reason, and prompts run from the start."""
    with Truth(tiny_models / "tiny-llama") as truth:
        for number in range(4):
            truth.ask(f"r{number}", tokens(100, 80 + number))
        full = truth.wait_for_report(lambda report: report.hot_entries == 4 * KEPT)
        half = full.hot_bytes // 2
        truth.rig.engine.configure(LiveSettings(hot_bytes=half, prefill_step_tokens=64))
        left = truth.wait_for_report(lambda report: report.hot_limit_bytes == half)
        assert 0 < left.hot_bytes <= half
        gone = [each for each in truth.rig.cache_frames if isinstance(each, CacheEvicted)]
        assert [(each.tier, each.reason) for each in gone] == [("hot", "budget")]
        assert gone[0].bytes == full.hot_bytes - left.hot_bytes
        assert gone[0].blocks == full.hot_entries - left.hot_entries
        truth.rig.engine.configure(LiveSettings(prefill_step_tokens=64))
        for name in ("off", "off again"):
            truth.ask(name, PROMPT)
            assert truth.usage(name).match is None
            assert truth.cached(name) == 0
        assert truth.wait_for_report(lambda report: report.hot_entries == 0).hot_bytes == 0
        truth.rig.engine.configure(HOT)
        for name, cached in (("on", 0), ("on again", len(PROMPT) - 1)):
            truth.ask(name, PROMPT)
            assert truth.cached(name) == cached


def test_turned_off_while_rows_run_they_run_on(tiny_models: Path) -> None:
    """Rows that came before, and those that waited for one of them, end well."""
    common = tokens(400, 90)
    with Truth(tiny_models / "tiny-llama") as truth:
        truth.rig.on_token = lambda token: truth.rig.engine.configure(LiveSettings())
        truth.submit("stream", tokens(30, 91), 60)
        truth.rig.wait_for(lambda: "stream" in truth.rig.scheduled)
        for number in range(3):
            truth.submit(f"r{number}", [*common, number])
        truth.check("stream", "r0", "r1", "r2")


@pytest.mark.parametrize("op", ["clear_hot", "clear"])
def test_a_command_clears_what_ram_holds(
    tiny_models: Path, op: Literal["clear_hot", "clear"]
) -> None:
    """It says how much that was, and the next prompt starts at its first token."""
    with Truth(tiny_models / "tiny-llama") as truth:
        truth.ask("first", PROMPT)
        held = truth.wait_for_report(lambda report: report.hot_entries == KEPT)
        truth.rig.engine.command_cache(CacheCommand(7, op))
        truth.rig.wait_for(lambda: CacheDone in map(type, truth.rig.cache_frames))
        [done] = [each for each in truth.rig.cache_frames if isinstance(each, CacheDone)]
        assert done == CacheDone(7, held.hot_entries, held.hot_bytes)
        truth.ask("again", PROMPT)
        assert truth.cached("again") == 0


def test_reports_tell_what_was_reused_and_come_to_rest(tiny_models: Path) -> None:
    """Prompt tokens by source add up to all that came, and an idle engine is silent."""
    with Truth(tiny_models / "tiny-llama") as truth:
        truth.ask("first", PROMPT)
        truth.ask("again", PROMPT)
        report = truth.wait_for_report(lambda report: report.tokens["ram"] > 0)
        assert report.tokens == {"ram": 99, "ssd": 0, "computed": 101}
        assert report.counts["hits"] == 1
        assert report.counts["missed: nothing stored"] == 1
        assert report.counts["stored: kv"] >= 7
        assert 0 < report.store_s < 60
        assert len(report.namespace) == 64
        assert report.hot_limit_bytes == HOT.hot_bytes
