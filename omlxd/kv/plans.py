"""What the cache core answers: matches, cuts and changes. The shell carries them out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from omlxd.kv.types import BlockHash, EntryKey, EntryKind

if TYPE_CHECKING:
    from omlxd.kv.chain_keys import BlockRef, ChainKeys

WhyNotMore = Literal[
    "exact prompt",  # all but the last token, which always has to run
    "nothing stored",  # the cache is empty
    "diverged",  # the nearest stored path has another token at `diverged_at`
    "evicted",  # the next block was stored, and went
    "never stored",  # what follows is new, or part of something that only the disk has
    "not restorable here",  # tokens beyond are held, but no window or state to go on from
    "on disk, unreadable",  # the next block's file could not be read
    "no room in RAM",  # the next block is on disk and the hot budget cannot hold it beside the rest
]
WHY_NOT_MORE: tuple[WhyNotMore, ...] = get_args(WhyNotMore)

Refusal = Literal[
    "",
    "already held",  # not longer than what is held
    "larger than the budget",
    "no room",  # what could go is in use, or worth more than a block nobody asked for yet
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBlock:
    """One block of a match, with the entries that the join needs of it; None = not needed."""

    block: BlockHash
    start: int  # position of its first token
    tokens: int  # all that its entries were cut for; the match may end inside
    kv: EntryKey | None = None
    window: EntryKey | None = None
    point: EntryKey | None = None

    @property
    def keys(self) -> tuple[EntryKey, ...]:
        return tuple(key for key in (self.kv, self.window, self.point) if key is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The longest prefix that can be restored: `point` tokens, from the blocks of `run`.

    `run` covers [0, point) in order; its last block may be a tail or used in part. Entries in
    `loads` must be read from disk first, those in `pending` are being read already: when all have
    arrived, match again.
    """

    point: int
    run: tuple[RunBlock, ...] = ()
    loads: tuple[EntryKey, ...] = ()
    pending: tuple[EntryKey, ...] = ()
    ram_tokens: int = 0
    ssd_tokens: int = 0  # of blocks that are, or for this match were, read from disk
    donor: str | None = None  # the request that stored the deepest block; None = not known
    diverged_at: int | None = None  # first token that differs from the nearest path in RAM
    why_not_more: WhyNotMore

    @property
    def is_ready(self) -> bool:
        return not self.loads and not self.pending

    @property
    def keys(self) -> tuple[EntryKey, ...]:
        return tuple(key for block in self.run for key in block.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An entry to be cut out of a row's caches: the tokens [start, stop) of one block.

    Of a window the caches may hold less than that: its last tokens are welcome too. A point is
    the state at `stop`.
    """

    key: EntryKey
    kind: EntryKind
    ref: BlockRef
    is_tail: bool
    is_newest: bool  # ends where the row stands
    chain: ChainKeys = field(repr=False, compare=False)  # of the row it is cut from

    @property
    def start(self) -> int:
        return self.ref.start

    @property
    def stop(self) -> int:
        return self.ref.stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What the shell has to do: drop the arrays of `evict`, and of the new one unless `stored`."""

    evict: tuple[EntryKey, ...] = ()
    stored: bool = False
    refused: Refusal = ""
