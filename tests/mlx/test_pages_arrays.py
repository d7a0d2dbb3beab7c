"""Arrays of any type and width survive, and a model whose caches do not come back is told why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.utils import load_model

from omlxd.worker import pages_kinds
from omlxd.worker.pages import Pages, group_arrays
from omlxd.worker.pages_kinds import Held, Kind, leaves
from tests.support.engine import loaded
from tests.support.pages import CutRow, draw, pages_of, run_and_cut

pytestmark = pytest.mark.mlx

PROMPT = [(37 * n) % 900 + 10 for n in range(90)]


class FakeModel:
    """Caches of its own choice, filled with numbers that depend on token and position."""

    def __init__(self, make: Callable[[], list[Any]], widths: tuple[int, int] = (8, 8)) -> None:
        self._make, self._widths = make, widths

    def make_cache(self) -> list[Any]:
        return self._make()

    def __call__(self, tokens: mx.array, cache: Sequence[Any]) -> mx.array:
        total = mx.zeros((1, tokens.shape[1], 1))
        for number, leaf in enumerate(leaves(cache)):
            if isinstance(leaf, ArraysCache):
                leaf[0] = tokens[:, -1:].astype(mx.float32) + number
                continue
            column = tokens.astype(mx.float32)[:, None, :, None]
            rows = [mx.broadcast_to(column + number, (*column.shape[:3], w)) for w in self._widths]
            keys, _ = leaf.update_and_fetch(*rows)
            if isinstance(keys, mx.array):
                total = total + keys.sum()
        return mx.broadcast_to(total, (1, tokens.shape[1], 16))


def held_arrays(caches: Sequence[Any]) -> list[mx.array]:
    kinds = pages_kinds.KINDS
    return [array for leaf in leaves(caches) for array in kinds[type(leaf)].held(leaf).arrays]


def round_trip(caches: list[Any], templates: list[Any], computed: int) -> list[Any]:
    row = CutRow(Pages(templates, group_arrays(caches)), 16)
    row.cut(caches, computed)
    return row.join(computed)


@pytest.mark.parametrize("widths", [(8, 8), (24, 0), (16, 4)])
def test_keys_and_values_of_any_width_come_back(widths: tuple[int, int]) -> None:
    """Latent attention has values of no width; keys and values need not be equally wide."""
    model = FakeModel(lambda: [CacheList(KVCache(), KVCache()), CacheList(KVCache())], widths)
    caches = model.make_cache()
    mx.eval(model(mx.array([PROMPT]), cache=caches))
    joined = round_trip(caches, model.make_cache(), 90)
    assert [type(each) for each in joined] == [CacheList, CacheList]
    assert [len(each.caches) for each in joined] == [2, 1]
    for before, after in zip(held_arrays(caches), held_arrays(joined), strict=True):
        assert before.shape == after.shape
        assert mx.array_equal(before, after)


def test_an_array_that_is_alone_in_its_group_is_copied_too() -> None:
    """One layer with values narrower than its keys: each piece holds a block, not the row."""
    model = FakeModel(lambda: [KVCache()], (256, 128))
    row = CutRow(pages_of(model), 16)
    mx.synchronize()
    before = mx.get_active_memory()
    caches = model.make_cache()
    mx.eval(model(mx.array([PROMPT * 10]), cache=caches))
    row.cut(caches, 900)
    del caches
    for span in [span for span in row.pieces if span.start != 64]:
        del row.pieces[span]
    (piece,) = row.pieces.values()
    mx.synchronize()
    assert piece.nbytes == 16 * (256 + 128) * 4
    assert piece.nbytes <= mx.get_active_memory() - before <= piece.nbytes + 2 * 16_384


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-lfm2", "tiny-falcon-h1"])
def test_half_precision_comes_back_bit_by_bit(tiny_models: Path, name: str) -> None:
    """Types are per array: a half-precision hybrid keeps some states in single precision."""
    model, _ = load_model(tiny_models / name)
    model.set_dtype(mx.bfloat16)
    row = run_and_cut(model, PROMPT, 8, block_tokens=16, step=64, stride=48)
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([row.tokens[:48]]), cache=caches))
    types = {array.dtype for array in held_arrays(caches)}
    assert mx.bfloat16 in types
    for before, after in zip(held_arrays(caches), held_arrays(row.join(48)), strict=True):
        assert before.dtype == after.dtype
    (cold,) = draw(model, [row.tokens], [None], 12, step=64)
    (restored,) = draw(model, [row.tokens[96:]], [row.join(96)], 12, step=64)
    assert restored == cold


def test_classes_that_cannot_be_cut_are_named() -> None:
    """Quantised caches, rings with kept tokens, windows of two lengths: no reuse, and why."""
    quantised = Pages.inspect(FakeModel(lambda: [KVCache(), QuantizedKVCache()]))
    assert quantised == "it uses QuantizedKVCache, which cannot be cut into blocks"
    kept = Pages.inspect(FakeModel(lambda: [RotatingKVCache(64, keep=4)]))
    assert isinstance(kept, str)
    assert "keeps first tokens for good" in kept
    mixed = Pages.inspect(FakeModel(lambda: [RotatingKVCache(64), RotatingKVCache(32)]))
    assert mixed == "its layers have windows of several lengths: [31, 63]"


def test_a_model_that_fails_the_trial_is_told_why() -> None:
    """An unused layer, a state that changes shape, a call that raises, a state elsewhere."""

    def unused(tokens: mx.array, cache: Sequence[Any]) -> mx.array:
        return FakeModel(list)(tokens, cache[:1])

    model = FakeModel(lambda: [KVCache(), KVCache()])
    assert isinstance(Pages.inspect(model), Pages)
    reasons = [
        Pages.inspect(_Model(model.make_cache, unused)),
        Pages.inspect(_Model(lambda: [ArraysCache(1)], _growing_state)),
        Pages.inspect(_Model(model.make_cache, _raising)),
        Pages.inspect(_Model(model.make_cache, _Remembering(model))),
    ]
    assert "failed a trial" in str(reasons[0])
    assert reasons[1] == "its caches change their shape or type from step to step"
    assert reasons[2] == "its caches failed a trial: RuntimeError: no such kernel"
    assert reasons[3] == "it does not go on from blocks as it does from its own caches"


class _Model:
    def __init__(self, make: Callable[[], list[Any]], run: Callable[..., mx.array]) -> None:
        self.make_cache, self._run = make, run

    def __call__(self, tokens: mx.array, cache: Sequence[Any]) -> mx.array:
        return self._run(tokens, cache)


def _growing_state(tokens: mx.array, cache: Sequence[Any]) -> mx.array:
    cache[0][0] = tokens if cache[0][0] is None else mx.concatenate([cache[0][0], tokens], axis=1)
    return mx.zeros((1, tokens.shape[1], 4))


class _Remembering:
    """Keeps something between calls that no cache holds."""

    def __init__(self, model: FakeModel) -> None:
        self._model, self._calls = model, 0

    def __call__(self, tokens: mx.array, cache: Sequence[Any]) -> mx.array:
        self._calls += 1
        return self._model(tokens, cache) * self._calls


def _raising(tokens: mx.array, cache: Sequence[Any]) -> mx.array:
    raise RuntimeError("no such kernel")


def _swapped(template: Any, point: int, arrays: Sequence[mx.array]) -> Any:
    return type(template).from_state((arrays[1], arrays[0], point))


def _off_by_one(template: Any, point: int, arrays: Sequence[mx.array]) -> Any:
    return type(template).from_state((*arrays, point - 1))


def _old_layout(template: Any, point: int, arrays: Sequence[mx.array]) -> Any:
    return type(template).from_state(tuple(arrays))


def _reversed_held(cache: Any) -> Held:
    return Held(0, tuple(array[:, :, ::-1] for array in cache.keys_and_values()))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"build": _swapped}, "do not come back equal"),
        ({"build": _off_by_one}, "do not come back equal"),
        ({"build": _old_layout}, "failed a trial: ValueError"),
        ({"held": _reversed_held}, "do not come back equal"),
    ],
)
def test_the_trial_notices_a_class_that_changed(
    tiny_models: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], reason: str
) -> None:
    """What another release could change about a class switches reuse off, with no wrong answer."""
    kind: Kind = dataclasses.replace(pages_kinds.KINDS[KVCache], **change)
    monkeypatch.setitem(pages_kinds.KINDS, KVCache, kind)
    found = Pages.inspect(loaded(tiny_models / "tiny-llama"))
    assert isinstance(found, str)
    assert reason in found
