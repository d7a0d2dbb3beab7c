"""Rows that enter a batch, leave it and are read without copies give what mlx-lm's copies give."""

from __future__ import annotations

import mlx.core as mx
import pytest
from mlx_lm.models.cache import BatchKVCache, CacheList, KVCache, RotatingKVCache

from omlxd.worker.batch_kv import for_batch


def filled(tokens: int, *, seed: int = 0) -> KVCache:
    cache = KVCache()
    keys, values = mx.random.normal((2, 1, 2, tokens, 4), key=mx.random.key(seed))
    cache.update_and_fetch(keys, values)
    return cache


def merged(caches: list[KVCache]) -> BatchKVCache:
    rows = [for_batch([cache])[0] for cache in caches]
    return type(rows[0]).merge(rows)


def same(left: KVCache, right: KVCache) -> bool:
    pairs = zip(left.keys_and_values(), right.keys_and_values(), strict=True)
    return left.offset == right.offset and all(bool(mx.array_equal(a, b)) for a, b in pairs)


@pytest.mark.parametrize("lengths", [[5], [300], [5, 300, 17]])
def test_what_goes_in_comes_out(lengths: list[int]) -> None:
    """Merged, lengthened by two tokens and read, a row is what mlx-lm's own batch makes of it."""
    caches = [filled(length, seed=row) for row, length in enumerate(lengths)]
    ours, theirs = merged(caches), BatchKVCache.merge(caches)
    step = mx.ones((len(lengths), 2, 2, 4))
    for batch in (ours, theirs):
        batch.update_and_fetch(step, step)
    assert all(same(ours.extract(row), theirs.extract(row)) for row in range(len(lengths)))


@pytest.mark.parametrize("keep", [[0, 1, 2], [2, 0], [1]])
def test_rows_can_be_picked(keep: list[int]) -> None:
    """Filtering keeps the rows asked for, in the order asked for."""
    caches = [filled(length, seed=row) for row, length in enumerate([5, 300, 17])]
    ours, theirs = merged(caches), BatchKVCache.merge(caches)
    for batch in (ours, theirs):
        batch.filter(keep)
    assert all(same(ours.extract(row), theirs.extract(row)) for row in range(len(keep)))


def test_one_row_enters_and_is_read_without_a_copy() -> None:
    """A megabyte of KV goes in and is read again, and no other megabyte is taken."""
    cache = filled(8192)
    mx.eval(cache.state)
    before = mx.get_active_memory()
    batch = merged([cache])
    batch.filter([0])
    row = batch.extract(0)
    mx.eval(row.keys, row.values)
    assert mx.get_active_memory() - before < 4096


def test_a_view_does_not_change_with_its_batch() -> None:
    """What was read stays as it was while the batch goes on."""
    cache = filled(20)
    batch = merged([cache])
    row = batch.extract(0)
    batch.update_and_fetch(mx.ones((1, 2, 1, 4)), mx.ones((1, 2, 1, 4)))
    assert same(row, cache)


def test_other_caches_are_left_alone() -> None:
    """Only caches that grow are exchanged, also inside a list."""
    window, growing = RotatingKVCache(8), KVCache()
    (inner,) = for_batch([CacheList(window, growing)])
    assert inner.caches[0] is window
    assert isinstance(inner.caches[1], KVCache)
    assert type(inner.caches[1]) is not KVCache
