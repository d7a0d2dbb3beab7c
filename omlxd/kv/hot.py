"""The hot tier: which entries are in RAM, their bytes, pins, and who makes room for whom.

The budget holds after every call, unless nothing is left that may go: what is pinned, and what
pinned blocks hang on. Every byte enters by `insert`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from omlxd.kv.chain_keys import BlockRef
from omlxd.kv.counts import CacheCounts
from omlxd.kv.entries import Entry, Node
from omlxd.kv.index import Index
from omlxd.kv.order import PROTECTED_SHARE, EvictionOrder
from omlxd.kv.types import EntryKey, EntryKind, Layout


class HotTier:
    def __init__(self, layout: Layout, index: Index, budget: int) -> None:
        self.entries: dict[EntryKey, Entry] = {}  # oldest first
        self.budget = budget
        self.used = 0
        self.pinned_bytes = 0
        self._pins: dict[EntryKey, int] = {}  # also of entries that are still to come
        self._spent: OrderedDict[EntryKey, Entry] = OrderedDict()  # first to go
        self._index = index
        self._block_tokens = layout.block_tokens
        # Without layers that keep every token a block is of use without those before it.
        chained = layout.grows
        self.order = EvictionOrder(
            index.nodes, has_children=lambda block: chained and bool(index.children(block))
        )

    # ------------------------------------------------------------------ pins

    def pin(self, keys: Iterable[EntryKey]) -> None:
        for key in keys:
            self._pins[key] = self._pins.get(key, 0) + 1
            if self._pins[key] == 1 and (entry := self.entries.get(key)) is not None:
                self._pinned(entry, 1)

    def unpin(self, keys: Iterable[EntryKey]) -> None:
        for key in keys:
            assert self._pins.get(key, 0) > 0, key.hex()
            self._pins[key] -= 1
            if self._pins[key] == 0:
                del self._pins[key]
                if (entry := self.entries.get(key)) is not None:
                    self._pinned(entry, -1)

    def is_pinned(self, key: EntryKey) -> bool:
        return key in self._pins

    def _pinned(self, entry: Entry, by: int) -> None:
        entry.node.pinned += by
        self.pinned_bytes += by * entry.nbytes
        self.order.freed(entry.node)

    # ------------------------------------------------------------------ in and out

    def insert(
        self,
        ref: BlockRef,
        kind: EntryKind,
        key: EntryKey,
        *,
        nbytes: int,
        held: int,
        now: float,
        sparing: bool,
    ) -> tuple[Entry | None, list[Entry]]:
        """Take an entry in, or a longer piece of one that is here.

        Gives the entry, or None if no room could be made, and what went to make room. When
        `sparing`, what later requests used does not go.
        """
        node = self._index.get(ref.block)
        if node is None:
            node = Node(ref, is_tail=ref.tokens < self._block_tokens, donor=None)
            self._index.add(node)
        entry = node.entries.get(kind)
        more = nbytes
        if entry is not None:
            self._unspend(entry)  # it does not make room for its successor
            more -= entry.nbytes
        node.pinned += 1  # neither it nor what it hangs on makes room for itself
        self._keep_share(now)
        evicted = list(self.make_room(more, sparing=sparing))
        node.pinned -= 1
        if self.used + more > self.budget:
            self._settle(node)
            return None, evicted
        if entry is None:
            entry = Entry(key, kind, node, nbytes=0, held=held)
            node.entries[kind] = self.entries[key] = entry
            node.pinned += self.is_pinned(key)
        entry.held = held
        self._grow(entry, more)
        self.order.stored(node, now)
        return entry, evicted

    def make_room(self, nbytes: int, *, sparing: bool) -> Iterator[Entry]:
        """Evict until so many bytes more would fit, or nothing is left that may go."""
        while self.used + nbytes > self.budget:
            gone = self._first_spent() or self._first_node(sparing=sparing)
            if not gone:
                return
            for entry in gone:
                self.remove(entry)
            yield from gone

    def remove(self, entry: Entry) -> None:
        assert entry.key not in self._pins, entry.key.hex()
        self._grow(entry, -entry.nbytes)
        self._unspend(entry)
        del self.entries[entry.key]
        del entry.node.entries[entry.kind]
        self._settle(entry.node)

    def remove_unpinned(self) -> list[Entry]:
        """Everything that is not in use."""
        gone = [entry for key, entry in self.entries.items() if key not in self._pins]
        for entry in gone:
            self.remove(entry)
        return gone

    def use(self, blocks: Iterable[Sequence[Entry]], now: float) -> None:
        """A later request uses these entries; blocks from the end of the path to its head."""
        for entries in blocks:
            for entry in entries:
                entry.hits += 1
                entry.from_disk = False
                self._unspend(entry)
            self.order.used(entries[0].node, now)
        self._keep_share(now)

    def spend(self, entry: Entry) -> None:
        """Its conversation has moved on: it goes before everything else."""
        entry.is_spent = True
        self._spent[entry.key] = entry

    def _unspend(self, entry: Entry) -> None:
        entry.is_spent = False
        self._spent.pop(entry.key, None)

    # ------------------------------------------------------------------ inside

    def _keep_share(self, now: float) -> None:
        self.order.demote(int(PROTECTED_SHARE * self.budget), now)

    def _first_spent(self) -> list[Entry]:
        free = (entry for key, entry in self._spent.items() if key not in self._pins)
        entry = next(free, None)
        return [] if entry is None else [entry]

    def _first_node(self, *, sparing: bool) -> list[Entry]:
        node = self.order.first(sparing=sparing)
        return [] if node is None else list(node.entries.values())

    def _grow(self, entry: Entry, more: int) -> None:
        entry.nbytes += more
        self.used += more
        self.pinned_bytes += more * self.is_pinned(entry.key)
        self.order.grew(entry.node, more)

    def _settle(self, node: Node) -> None:
        """After an entry went, or did not come: a node without entries goes."""
        if node.entries or node.pinned:
            self.order.freed(node)
            return
        self.order.remove(node)
        self._index.remove(node)
        parent = self._index.get(node.ref.parent)
        if parent is not None:
            self.order.freed(parent)

    def report(self, counts: CacheCounts) -> None:
        counts.hot_bytes = self.used
        counts.hot_budget_bytes = self.budget
        counts.pinned_bytes = self.pinned_bytes
        counts.protected_bytes = self.order.protected_bytes
        counts.hot_entries = Counter(entry.kind for entry in self.entries.values())

    def check_integrity(self) -> None:
        assert self.used == sum(entry.nbytes for entry in self.entries.values())
        assert all(count > 0 for count in self._pins.values())
        assert self.pinned_bytes == sum(
            entry.nbytes for key, entry in self.entries.items() if key in self._pins
        )
        for key, entry in self.entries.items():
            assert entry.key == key
            assert entry.node.entries.get(entry.kind) is entry
            assert self._index.get(entry.node.ref.block) is entry.node
        for key, entry in self._spent.items():
            assert self.entries.get(key) is entry
            assert entry.is_spent
        assert len(self._spent) == sum(entry.is_spent for entry in self.entries.values())
        for node in self._index.nodes.values():
            assert node.entries, node.ref
            assert node.nbytes == sum(entry.nbytes for entry in node.entries.values())
            assert node.pinned == sum(e.key in self._pins for e in node.entries.values())
        if self.used > self.budget:
            assert not self._first_spent()
            assert not self._first_node(sparing=False)
        self.order.check_integrity()
