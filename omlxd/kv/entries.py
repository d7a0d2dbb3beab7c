"""What is in RAM: entries, and the blocks they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field

from omlxd.kv.chain_keys import BlockRef
from omlxd.kv.types import EntryKey, EntryKind


@dataclass(slots=True, eq=False)
class Entry:
    key: EntryKey
    kind: EntryKind
    node: Node
    nbytes: int
    held: int  # of a window: how many of the block's last tokens; else all of them
    hits: int = 0  # requests that used it after it was stored
    from_disk: bool = False  # read from disk, and not used since
    is_spent: bool = False  # its conversation has moved on: first to go


@dataclass(slots=True, eq=False)
class Node:
    """A block of which at least one entry is in RAM."""

    ref: BlockRef
    is_tail: bool
    donor: str | None  # the request that stored it; None = it came from disk
    entries: dict[EntryKind, Entry] = field(default_factory=dict)
    nbytes: int = 0
    pinned: int = 0  # entries of it that are pinned
    is_protected: bool = False
    stamp: int = 0  # place in the eviction order; 0 = in no order
    queued: int = 0  # the stamp it lies in the heap with
    touched: float = 0.0  # when it was last stored or used

    @property
    def stop(self) -> int:
        return self.ref.stop
