"""The cold tier as the core sees it: what is on disk, being read, waiting to be written.

Off until enabled. Bytes on disk are what files take, those waiting are what arrays take.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from omlxd.kv.chain_keys import BlockRef
from omlxd.kv.counts import CacheCounts
from omlxd.kv.types import EntryKey, EntryKind

MAX_WRITE_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class OnDisk:
    nbytes: int
    held: int | None  # tokens of a window piece; None = not known before it is read


@dataclass(frozen=True, slots=True)
class Load:
    """An entry that is being read, and where it belongs."""

    ref: BlockRef
    kind: EntryKind
    nbytes: int


@dataclass(frozen=True, slots=True)
class Unwritten:
    nbytes: int
    held: int


class ColdTier:
    """A key can be waiting and being written at once: then a longer piece has come meanwhile."""

    def __init__(self, counts: CacheCounts) -> None:
        self.enabled = False
        self.loading: dict[EntryKey, Load] = {}
        self.loading_bytes = 0
        self._counts = counts
        self._known: dict[EntryKey, OnDisk] = {}
        self._dirty: OrderedDict[EntryKey, Unwritten] = OrderedDict()  # oldest first
        self._writing: dict[EntryKey, Unwritten] = {}
        self._attempts: Counter[EntryKey] = Counter()

    def find(self, key: EntryKey) -> OnDisk | None:
        return self._known.get(key)

    @property
    def is_empty(self) -> bool:
        return not self._known

    def is_kept(self, key: EntryKey) -> bool:
        """Whether it is, or is about to be, on disk."""
        return key in self._known or key in self._writing

    def is_coming(self, key: EntryKey) -> bool:
        """Whether it is to be written, or is being written."""
        return key in self._dirty or key in self._writing

    # ------------------------------------------------------------------ what is there

    def enable(self, enabled: bool) -> None:
        """Off forgets what is on disk and what waits; a listing tells what is there later."""
        self.enabled = enabled
        if not enabled:
            self.forget_all()

    def forget_all(self) -> None:
        self._known.clear()
        self._dirty.clear()
        self._attempts.clear()

    def learn(self, key: EntryKey, nbytes: int, held: int | None) -> None:
        if self.enabled:
            self._known[key] = OnDisk(nbytes, held)

    def correct(self, key: EntryKey, held: int) -> None:
        """Reading it has shown how much a window's file holds."""
        if (there := self._known.get(key)) is not None:
            self._known[key] = OnDisk(there.nbytes, held)

    def listed(self, entries: Iterable[tuple[EntryKey, int]]) -> None:
        """These are on disk. What was written since the listing began is known better."""
        for key, nbytes in entries:
            if key not in self._known and key not in self._writing:
                self.learn(key, nbytes, None)
                self._dirty.pop(key, None)

    def forget(self, key: EntryKey) -> bool:
        """It is no longer on disk; whether it was thought to be."""
        return self._known.pop(key, None) is not None

    # ------------------------------------------------------------------ reading

    def begin_load(self, key: EntryKey, ref: BlockRef, kind: EntryKind) -> None:
        assert key not in self.loading, key.hex()
        nbytes = self._known[key].nbytes
        self.loading[key] = Load(ref, kind, nbytes)
        self.loading_bytes += nbytes

    def end_load(self, key: EntryKey) -> Load:
        load = self.loading.pop(key)
        self.loading_bytes -= load.nbytes
        return load

    # ------------------------------------------------------------------ writing

    def want(self, key: EntryKey, nbytes: int, held: int) -> None:
        """Have it written, unless what is on disk, or on its way, is as long."""
        if not self.enabled:
            return
        there = self._known.get(key)
        if there is not None and (there.held is None or there.held >= held):
            return
        coming = self._writing.get(key)
        if coming is None or coming.held < held:
            self._dirty[key] = Unwritten(nbytes, held)

    def lose(self, key: EntryKey, reason: str) -> None:
        """It can no longer be written."""
        if self._dirty.pop(key, None) is not None:
            self._counts.lost[reason] += 1
            self._attempts.pop(key, None)

    def hand_out(self, max_bytes: int) -> tuple[EntryKey, ...]:
        """What to write next, oldest first, so that what is being written stays within the bound.

        One entry that is larger than the bound is written alone.
        """
        keys = []
        busy = sum(each.nbytes for each in self._writing.values())
        for key, unwritten in self._dirty.items():
            if key in self._writing:
                continue
            if busy and busy + unwritten.nbytes > max_bytes:
                break
            busy += unwritten.nbytes
            keys.append(key)
        for key in keys:
            self._writing[key] = self._dirty.pop(key)
        return tuple(keys)

    def written(self, key: EntryKey, nbytes: int) -> None:
        done = self._writing.pop(key)
        self._counts.written += 1
        self._attempts.pop(key, None)
        self.learn(key, nbytes, done.held)

    def write_failed(self, key: EntryKey, reason: str, *, is_wanted: bool) -> None:
        """Again, later: unless nobody wants it there any more, or it has failed too often."""
        failed = self._writing.pop(key)
        if not self.enabled:
            self._counts.lost[reason] += 1
            return
        if is_wanted:
            self._dirty.setdefault(key, failed)
        self._attempts[key] += 1
        if is_wanted and self._attempts[key] < MAX_WRITE_ATTEMPTS:
            self._counts.write_retries[reason] += 1
            return
        self._dirty.pop(key, None)
        self._attempts.pop(key)
        self._counts.lost[reason] += 1

    # ------------------------------------------------------------------ figures

    def report(self, counts: CacheCounts) -> None:
        counts.cold_entries = len(self._known)
        counts.cold_bytes = sum(each.nbytes for each in self._known.values())
        counts.dirty_entries = len(self._dirty)
        counts.dirty_bytes = sum(each.nbytes for each in self._dirty.values())
        counts.writing_bytes = sum(each.nbytes for each in self._writing.values())
        counts.loading_bytes = self.loading_bytes

    def check_integrity(self) -> None:
        assert self.loading_bytes == sum(load.nbytes for load in self.loading.values())
        assert self.enabled or not (self._known or self._dirty or self._attempts)
        assert all(count < MAX_WRITE_ATTEMPTS for count in self._attempts.values())
        for key in self._attempts:
            assert key in self._dirty or key in self._writing, key.hex()

    def dirty_keys(self) -> tuple[EntryKey, ...]:
        return tuple(self._dirty)
