"""Growing caches that enter a batch, leave it and are read without being copied.

mlx-lm copies a row's whole KV when it is merged into a batch, when it moves from prefill to decode,
and each time it is read. One row of a long session is gigabytes; alone in its batch, it needs none
of these copies. Rows of several lengths are padded to one rectangle, which is a copy in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from mlx_lm.models.cache import BatchKVCache, CacheList, KVCache


class _BatchKV(BatchKVCache):  # type: ignore[misc]
    """`BatchKVCache` whose rows are read as views and which keeps its arrays if all rows stay."""

    def filter(self, batch_indices: Sequence[int]) -> None:
        if list(batch_indices) != list(range(self.offset.shape[0])):
            super().filter(batch_indices)

    def extract(self, idx: int) -> KVCache:
        row = KVCache()
        padding = self.left_padding.tolist()[idx]
        row.keys = self.keys[idx : idx + 1, :, padding : self._idx]
        row.values = self.values[idx : idx + 1, :, padding : self._idx]
        row.offset = row.keys.shape[2]
        return row

    @classmethod
    def of(cls, batch: BatchKVCache) -> Self:
        made = cls([0])
        made.state = batch.state
        return made


class _RowKV(KVCache):  # type: ignore[misc]
    """A `KVCache` that makes a `_BatchKV` when it is merged."""

    @classmethod
    def merge(cls, caches: Sequence[KVCache]) -> _BatchKV:
        (first, *others) = caches
        if others or first.keys is None:
            return _BatchKV.of(BatchKVCache.merge(caches))
        batch = _BatchKV([0])
        batch.keys, batch.values = first.keys, first.values
        batch.offset = batch.offset + first.offset
        batch._idx = first.offset
        return batch


def for_batch(caches: Sequence[Any]) -> list[Any]:
    """The caches of one row, ready to be given to a batch; they share their arrays."""
    return [_row(cache) for cache in caches]


def _row(cache: Any) -> Any:
    if isinstance(cache, CacheList):
        return CacheList(*for_batch(cache.caches))
    if type(cache) is not KVCache:
        return cache
    row = _RowKV()
    row.state = cache.state
    return row
