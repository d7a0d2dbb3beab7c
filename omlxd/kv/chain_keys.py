"""The chained hashes of one row's tokens, extended as the row grows."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from omlxd.kv.types import (
    TOKEN_BYTES,
    BlockHash,
    EntryKey,
    EntryKind,
    chain,
    chain_packed,
    entry_key,
)

NO_EXTRA: Mapping[int, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block with all that is needed to file it in the index."""

    block: BlockHash
    parent: BlockHash
    start: int
    tokens: int
    packed: bytes  # see `pack`
    extra: bytes

    @property
    def stop(self) -> int:
        return self.start + self.tokens


def pack(tokens: Sequence[int]) -> bytes:
    """Four bytes per token, most significant first: sorts as the tokens do."""
    return struct.pack(f">{len(tokens)}I", *tokens)


class ChainKeys:
    """Every full block is hashed once; a row's tokens only ever grow at the end.

    `extra` gives, by block number, what else decides a block's KV.
    """

    def __init__(
        self, root: BlockHash, block_tokens: int, extra: Mapping[int, bytes] = NO_EXTRA
    ) -> None:
        self.block_tokens = block_tokens
        self.hashes: list[BlockHash] = []  # of the full blocks, in order
        self.no_room_from: int | None = None  # the row's first block that RAM had no room for
        self._root = root
        self._extra = dict(extra)
        self._names: dict[tuple[int, EntryKind], EntryKey] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Hash the full blocks of `tokens`, the row's tokens from the first on, that are new."""
        size = self.block_tokens
        for index in range(len(self.hashes), len(tokens) // size):
            part = tokens[index * size : (index + 1) * size]
            self.hashes.append(chain(self.parent(index), part, self.extra(index)))

    def parent(self, index: int) -> BlockHash:
        """What the block with this number hangs on."""
        return self.hashes[index - 1] if index else self._root

    def extra(self, index: int) -> bytes:
        return self._extra.get(index, b"")

    def name(self, index: int, kind: EntryKind) -> EntryKey:
        """Name of a full block's entry."""
        key = self._names.get((index, kind))
        if key is None:
            key = self._names[index, kind] = entry_key(self.hashes[index], kind)
        return key

    def tails(self, tokens: Sequence[int], index: int) -> Iterator[tuple[int, BlockHash]]:
        """Lengths and hashes of all tails that `tokens` have in this place, longest first."""
        start = index * self.block_tokens
        part = tokens[start : start + self.block_tokens - 1]
        packed = struct.pack(f"<{len(part)}I", *part)
        parent, extra = self.parent(index), self.extra(index)
        for length in range(len(part), 0, -1):
            yield length, chain_packed(parent, packed[: length * TOKEN_BYTES], extra)

    def ref(self, tokens: Sequence[int], index: int, stop: int) -> BlockRef:
        """The block with this number, up to `stop`: a tail if that is not its end."""
        start = index * self.block_tokens
        part = tokens[start:stop]
        parent, extra = self.parent(index), self.extra(index)
        is_full = len(part) == self.block_tokens
        block = self.hashes[index] if is_full else chain(parent, part, extra)
        return BlockRef(block, parent, start, len(part), pack(part), extra)


def shared_ahead(a: ChainKeys, b: ChainKeys) -> int:
    """Tokens of two rows' common prefix, in whole blocks."""
    assert a.block_tokens == b.block_tokens, (a.block_tokens, b.block_tokens)
    most = min(len(a.hashes), len(b.hashes))
    # Chained: blocks that differ once differ ever after.
    blocks = bisect_left(range(most), True, key=lambda index: a.hashes[index] != b.hashes[index])
    return blocks * a.block_tokens
