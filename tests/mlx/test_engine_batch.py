"""Rows that join and leave a batch draw what they would draw alone, for every class of cache."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from omlxd.ipc.messages import LiveSettings
from omlxd.worker.generators import BatchLane
from omlxd.worker.lanes import Start
from omlxd.worker.lm_load import probe_abilities
from omlxd.worker.ports import RowJob
from tests.support.engine import EngineRig, loaded, make_llama4, solo
from tests.support.models import TINY_LLMS

pytestmark = pytest.mark.mlx

LENGTHS = (1, 2, 33, 64, 65, 130, 300, 17)
OUTPUTS = (5, 40, 12, 30, 1, 21, 9, 33)


def prompts(seed: int) -> list[list[int]]:
    source = random.Random(seed)
    return [[source.randrange(8, 1000) for _ in range(length)] for length in LENGTHS]


def differing(expected: list[int], got: list[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), -1)
    return f"at {at}: {expected[at : at + 4]} != {got[at : at + 4]}"


@pytest.mark.parametrize("name", TINY_LLMS)
def test_eight_rows_that_join_and_leave_equal_their_solo_runs(tiny_models: Path, name: str) -> None:
    """Ragged prompts, short steps beside streams, rows leaving at different times."""
    model = tiny_models / name
    asked = prompts(seed=11)
    live = LiveSettings(max_concurrent_requests=5, prefill_step_tokens=48)
    with EngineRig(model, live) as rig:
        for index, (prompt, count) in enumerate(zip(asked, OUTPUTS, strict=True)):
            rig.submit(f"r{index}", prompt, max_tokens=count)
        rig.wait(*(f"r{index}" for index in range(8)))
    for index, (prompt, count) in enumerate(zip(asked, OUTPUTS, strict=True)):
        expected, _ = solo(model, prompt, count)
        got = rig.ids(f"r{index}")
        assert got == expected, f"row {index}, {differing(expected, got)}"
    assert rig.failed == {}


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-qwen3-next"])
def test_rows_in_lanes_and_rows_put_back_equal_their_solo_runs(
    tiny_models: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With little memory rows run in lanes of their own and are preempted; no stream shows it."""
    model = tiny_models / name
    cost = probe_abilities(loaded(model)).cost
    inserted = spy_on_insertions(monkeypatch)
    monkeypatch.setattr("omlxd.sched.scheduler.HORIZON_TOKENS", 0)
    source = random.Random(5)
    asked = {f"r{n}": [source.randrange(8, 1000) for _ in range(n)] for n in (200, 201, 202, 203)}
    with EngineRig(model) as rig:
        weights = rig.engine.facts.result().weights_bytes
        # Four rows of 256 tokens have room, though not in one lane, where joining copies; at 257
        # tokens each buffer is a step larger, and one row has to step back.
        spare = 4 * cost.row_bytes(257) - 100
        rig.engine.configure(LiveSettings(memory_share_bytes=weights + spare))
        for key, prompt in asked.items():
            rig.submit(key, prompt, max_tokens=90)
        rig.wait(*asked)
    for key, prompt in asked.items():
        assert rig.ids(key) == solo(model, prompt, 90)[0], key
    assert {number for number, _ in inserted} > {0}
    assert any(output for _, output in inserted)


def spy_on_insertions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(lane, tokens drawn earlier) of every insertion from here on."""
    inserted: list[tuple[int, int]] = []
    lanes: list[BatchLane] = []
    insert = BatchLane.insert

    def spied(self: BatchLane, job: RowJob, output: Sequence[int], *start: Start) -> None:
        if job.request_id != "probe":
            if self not in lanes:
                lanes.append(self)
            inserted.append((lanes.index(self), len(output)))
        insert(self, job, output, *start)

    monkeypatch.setattr(BatchLane, "insert", spied)
    return inserted


def test_a_model_that_cannot_batch_runs_one_at_a_time(tmp_path: Path) -> None:
    """Requests wait for each other, are told why, and draw what a solo run draws."""
    model = make_llama4(tmp_path)
    asked = prompts(seed=3)[2:6]
    with EngineRig(model, LiveSettings(prefill_step_tokens=64)) as rig:
        facts = rig.engine.facts.result()
        assert not facts.batches
        assert "ChunkedKVCache" in facts.batch_reason
        for index, prompt in enumerate(asked):
            rig.submit(f"r{index}", prompt, max_tokens=12)
        rig.wait(*(f"r{index}" for index in range(len(asked))))
        order = [each.request_id for each in rig.tokens]
    assert order == sorted(order)
    for index, prompt in enumerate(asked):
        assert rig.ids(f"r{index}") == solo(model, prompt, 12)[0]


def test_a_row_of_a_solo_model_can_be_cancelled_in_prefill_and_in_decode(tmp_path: Path) -> None:
    """Prefill in chunks gives cancel its points; the next row starts."""
    model = make_llama4(tmp_path)
    with EngineRig(model, LiveSettings(prefill_step_tokens=1)) as rig:
        rig.submit("huge", [9] * 4000)
        rig.wait_for(lambda: "huge" in rig.scheduled)
        rig.engine.cancel("huge")
        rig.on_token = lambda token: rig.engine.cancel("stream")
        rig.submit("stream", [1, 2, 3], max_tokens=3000)
        rig.submit("next", [4, 5], max_tokens=3)
        rig.wait("next")
        assert rig.ids("huge") == []
        assert len(rig.ids("stream")) < 3000
        assert rig.ids("next") == solo(model, [4, 5], 3)[0]


def test_all_work_is_done_by_one_thread_and_reported_from_it(tiny_models: Path) -> None:
    """MLX arrays may not change threads, so the engine's never does."""
    with EngineRig(tiny_models / "tiny-llama") as rig:
        for index in range(4):
            rig.submit(f"r{index}", [9, 8, 7 + index], max_tokens=8)
        rig.wait("r0", "r1", "r2", "r3")
    assert len(rig.threads) == 1
