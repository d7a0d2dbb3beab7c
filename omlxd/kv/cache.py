"""The tiered cache of one engine: what is where, what may be reused, what has to go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omlxd.kv.chain_keys import NO_EXTRA, ChainKeys
from omlxd.kv.counts import CacheCounts
from omlxd.kv.plans import Changes, Cut, Match
from omlxd.kv.types import EntryKey, Layout


class KvCache:
    """Owned by the engine's thread. Holds no array: the shell does, by EntryKey."""

    def __init__(self, layout: Layout, namespace: bytes, *, hot_bytes: int) -> None:
        raise NotImplementedError

    def chain_keys(self, extra: Mapping[int, bytes] = NO_EXTRA) -> ChainKeys:
        """The hashes of a new row, under this cache's namespace."""
        raise NotImplementedError

    def match(self, tokens: Sequence[int], keys: ChainKeys, *, hot_only: bool = False) -> Match:
        raise NotImplementedError

    def pin(self, match: Match) -> None:
        """Before the loads, so that what arrives stays; entries that are pinned never go."""
        raise NotImplementedError

    def unpin(self, match: Match) -> Changes:
        raise NotImplementedError

    def touch(self, match: Match, now: float) -> None:
        """The match is used (or, with point 0, was a miss): once per request."""
        raise NotImplementedError

    def missing(
        self, tokens: Sequence[int], keys: ChainKeys, *, computed: int, at_point: bool
    ) -> tuple[Cut, ...]:
        raise NotImplementedError

    def put(
        self, cut: Cut, nbytes: int, *, request_id: str, now: float, held: int | None = None
    ) -> Changes:
        """`held`: how many of the block's last tokens a window piece has; None = all."""
        raise NotImplementedError

    def begin_load(self, match: Match, tokens: Sequence[int], keys: ChainKeys) -> None:
        """The shell reads `match.loads` now."""
        raise NotImplementedError

    def loaded(self, key: EntryKey, nbytes: int, *, now: float, held: int | None = None) -> Changes:
        raise NotImplementedError

    def load_failed(self, key: EntryKey, reason: str) -> None:
        raise NotImplementedError

    def set_cold(self, enabled: bool) -> None:
        raise NotImplementedError

    def cold_known(self, entries: Iterable[tuple[EntryKey, int]]) -> None:
        raise NotImplementedError

    def cold_gone(self, key: EntryKey) -> None:
        raise NotImplementedError

    def writes(self, max_bytes: int) -> tuple[EntryKey, ...]:
        raise NotImplementedError

    def written(self, key: EntryKey, nbytes: int) -> None:
        raise NotImplementedError

    def write_failed(self, key: EntryKey, reason: str) -> None:
        raise NotImplementedError

    def resize(self, hot_bytes: int) -> Changes:
        raise NotImplementedError

    def clear(self) -> Changes:
        raise NotImplementedError

    def stats(self) -> CacheCounts:
        raise NotImplementedError

    def check_integrity(self) -> None:
        raise NotImplementedError
