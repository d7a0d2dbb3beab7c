"""Tails on disk: which there are, and which of them their conversation has left behind.

A conversation needs the tails of its newest turn only: the prompt's, so that the very same prompt
can be restored, and the reply's, where the next turn goes on. So at most a few blocks' worth of it
is on disk twice. A tail that a restart made unknown is found by its hash, if at all, and else ages
like any file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omlxd.kv.chain_keys import BlockRef, ChainKeys, pack
from omlxd.kv.types import BlockHash, EntryKey


class DiskTails:
    """Owner of what is known of tails that are on disk, or are to be."""

    def __init__(self) -> None:
        self._under: dict[BlockHash, dict[EntryKey, BlockRef]] = {}  # by parent
        self._parents: dict[EntryKey, BlockHash] = {}

    def __iter__(self) -> Iterator[EntryKey]:
        return iter(self._parents)

    def add(self, ref: BlockRef, key: EntryKey) -> None:
        self._under.setdefault(ref.parent, {})[key] = ref
        self._parents[key] = ref.parent

    def forget(self, key: EntryKey) -> None:
        """It is not on disk, and is not to be."""
        parent = self._parents.pop(key, None)
        if parent is None:
            return
        del self._under[parent][key]
        if not self._under[parent]:
            del self._under[parent]

    def clear(self) -> None:
        self._under.clear()
        self._parents.clear()

    def left_behind(
        self, tokens: Sequence[int], chain: ChainKeys, *, before: int
    ) -> tuple[EntryKey, ...]:
        """Entries of tails that these tokens come by and that end `before` so many of them."""
        size = chain.block_tokens
        found: list[EntryKey] = []
        for number in range(-(-before // size)):
            refs = self._under.get(chain.parent(number))
            if not refs:
                continue
            part = pack(tokens[number * size : (number + 1) * size])
            found += [
                key
                for key, ref in refs.items()
                if ref.stop < before
                and ref.extra == chain.extra(number)
                and part.startswith(ref.packed)
            ]
        return tuple(found)

    def check_integrity(self) -> None:
        places = {key: parent for parent, refs in self._under.items() for key in refs}
        assert places == self._parents
        assert all(self._under.values())
