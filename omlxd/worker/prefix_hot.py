"""The arrays of what the cache core says is in RAM. No other place holds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from omlxd.ipc.messages import CacheEvicted
from omlxd.kv.cache import KvCache
from omlxd.kv.plans import Changes, Cut, RunBlock
from omlxd.kv.types import EntryKey
from omlxd.worker.piece import BlockPieces, Piece


@dataclass(slots=True)
class _Dropped:
    entries: int = 0
    nbytes: int = 0


class HotPieces:
    """Owned by the engine thread."""

    def __init__(self, core: KvCache, clock: Callable[[], float]) -> None:
        self.core = core
        self.changes = 0  # rises with whatever happens here
        self._clock = clock
        self._pieces: dict[EntryKey, Piece] = {}
        self._dropped: dict[str, _Dropped] = defaultdict(_Dropped)  # by reason, since the report

    def __getitem__(self, key: EntryKey) -> Piece:
        return self._pieces[key]

    def __iter__(self) -> Iterator[EntryKey]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self._pieces.values())

    def block(self, block: RunBlock) -> BlockPieces:
        """What a join needs of one block."""
        return BlockPieces(
            tokens=block.tokens,
            kv=None if block.kv is None else self._pieces[block.kv],
            window=None if block.window is None else self._pieces[block.window],
            point=None if block.point is None else self._pieces[block.point],
        )

    def put(self, cut: Cut, piece: Piece, *, request_id: str) -> Changes:
        """Offer what was cut out of a row."""
        changes = self.core.put(
            cut, piece.nbytes, request_id=request_id, now=self._clock(), held=_held(piece)
        )
        self._take(cut.key, piece, changes)
        return changes

    def loaded(self, key: EntryKey, piece: Piece) -> None:
        """Take in what was read from disk."""
        changes = self.core.loaded(key, piece.nbytes, now=self._clock(), held=_held(piece))
        self._take(key, piece, changes)

    def drop(self, changes: Changes, reason: str) -> None:
        """Let go of what the core no longer has."""
        self.changes += 1
        for key in changes.evict:
            dropped = self._dropped[reason]
            dropped.entries += 1
            dropped.nbytes += self._pieces.pop(key).nbytes

    def take_evicted(self) -> Iterator[CacheEvicted]:
        """What went since this was last asked."""
        dropped, self._dropped = self._dropped, defaultdict(_Dropped)
        for reason, each in dropped.items():
            yield CacheEvicted("hot", each.entries, each.nbytes, reason)

    def _take(self, key: EntryKey, piece: Piece, changes: Changes) -> None:
        self.drop(changes, "room")
        if changes.stored:
            self._pieces[key] = piece


def _held(piece: Piece) -> int | None:
    return piece.tokens if piece.kind == "window" else None
