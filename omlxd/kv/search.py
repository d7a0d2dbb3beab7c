"""The longest prefix of a row's tokens that every kind of layer can go on from.

Candidates are the full blocks on the row's path, at every parent on it the children in RAM that
share a prefix with what follows (tails, and blocks that diverge inside), and behind the last a
tail on disk. A point p can be restored if there are, in RAM or on disk,

- `kv` entries of all blocks of [0, p);
- `window` entries that cover [p - (window - 1), p) without a hole;
- a `point` entry at exactly p;

each where the layout has the kind. p is at most len(tokens) - 1: one token has to run. The
deepest such p wins. If it takes entries from disk, all it takes has to fit into RAM at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from omlxd.kv.chain_keys import ChainKeys, pack
from omlxd.kv.entries import Node
from omlxd.kv.plans import RunBlock
from omlxd.kv.tiers import Tiers
from omlxd.kv.types import BlockHash, EntryKey, EntryKind, entry_key

MOST_BRANCHES = 32  # children tried under one parent, those that share most first


class Found(NamedTuple):  # a path has thousands: made faster than a frozen dataclass
    """An entry, where it is, and how many bytes it adds to what RAM has promised."""

    key: EntryKey
    held: int
    tier: Literal["ram", "disk", "loading"]
    needs: int
    counts_as_ssd: bool


class Block(NamedTuple):
    """A block on the path, or a branch off it, with what there is of it."""

    block: BlockHash
    start: int
    tokens: int
    found: dict[EntryKind, Found]
    donor: str | None

    @property
    def stop(self) -> int:
        return self.start + self.tokens


@dataclass(frozen=True, slots=True)
class Restorable:
    point: int = 0
    run: tuple[RunBlock, ...] = ()
    loads: tuple[EntryKey, ...] = ()
    pending: tuple[EntryKey, ...] = ()
    ssd_tokens: int = 0
    donor: str | None = None


class Search:
    def __init__(
        self, tiers: Tiers, tokens: Sequence[int], keys: ChainKeys, *, hot_only: bool
    ) -> None:
        assert tokens
        keys.extend(tokens)
        self.tiers = tiers
        self.tokens = tokens
        self.keys = keys
        self.limit = len(tokens) - 1
        self.path: list[Block] = []  # full blocks that can be gone along
        self.was_no_room = False  # a deeper point was passed over
        self._end = 0  # number of the block behind the last of which there is anything
        self._reads_disk = not hot_only and not tiers.cold.is_empty
        # By block number, of the blocks before it:
        self._covered_from = [0]  # windows hold all from here to the block's start
        self._needs = [0]  # bytes of their kv entries
        self._unread = [0]  # kv entries on disk
        self._walk()

    def deepest(self) -> Restorable:
        size = self.tiers.layout.block_tokens
        for number in range(min(len(self.path), self.limit // size), -1, -1):
            for block, shared in self._candidates(number):
                point = self._reach(number, block, shared)
                if point and (restorable := self._restore(number, block, point)) is not None:
                    return restorable
        return Restorable()

    def nearest(self) -> tuple[int, bool]:
        """How far the row goes along with anything stored, and whether it parts from it there."""
        for number in range(len(self.path), -1, -1):
            if number < len(self.path) and self.path[number].found:
                return self.path[number].stop, False
            for shared, node in self._branches(number):
                reach = node.ref.start + shared
                return reach, shared < node.ref.tokens and reach < len(self.tokens)
        return 0, False

    # ------------------------------------------------------------------ the path

    def _walk(self) -> None:
        layout = self.tiers.layout
        for number in range(len(self.tokens) // layout.block_tokens):
            block = self._full_block(number)
            kv = block.found.get("kv")
            if layout.grows and kv is None:
                return
            self.path.append(block)
            if block.found:
                self._end = number + 1
            self._needs.append(self._needs[-1] + (kv.needs if kv is not None else 0))
            self._unread.append(self._unread[-1] + (kv is not None and kv.tier == "disk"))
            self._covered_from.append(self._cover(number, block))

    def _full_block(self, number: int) -> Block:
        size = self.tiers.layout.block_tokens
        names = {kind: self.keys.name(number, kind) for kind in self.tiers.layout.kinds}
        return self._block(self.keys.hashes[number], number * size, size, names)

    def _block(
        self, block: BlockHash, start: int, tokens: int, names: Mapping[EntryKind, EntryKey]
    ) -> Block:
        """A block with what there is of it, in RAM if it can be had there."""
        node = self.tiers.index.get(block)
        found: dict[EntryKind, Found] = {}
        for kind, name in names.items():
            if node is not None and kind in node.entries:
                found[kind] = self._in_ram(node, kind)
            elif self._reads_disk and (there := self._on_disk(name, of=tokens)) is not None:
                found[kind] = there
        return Block(block, start, tokens, found, node.donor if node is not None else None)

    def _in_ram(self, node: Node, kind: EntryKind) -> Found:
        entry = node.entries[kind]
        needs = 0 if self.tiers.hot.is_pinned(entry.key) else entry.nbytes
        return Found(entry.key, entry.held, "ram", needs, entry.from_disk)

    def _on_disk(self, key: EntryKey, *, of: int) -> Found | None:
        """An entry of a block of so many tokens, if it is on disk."""
        there = self.tiers.cold.find(key)
        if there is None:
            return None
        held = there.held if there.held is not None else of
        if key in self.tiers.cold.loading:
            return Found(key, held, "loading", 0, True)
        return Found(key, held, "disk", there.nbytes, True)

    def _cover(self, number: int, block: Block) -> int:
        """From where on windows hold everything up to the block's end."""
        window = block.found.get("window")
        begin = block.stop - (window.held if window is not None else 0)
        return begin if begin > block.start else self._covered_from[number]

    # ------------------------------------------------------------------ candidates

    def _candidates(self, number: int) -> Iterator[tuple[Block, int]]:
        """Blocks at this place, and how many tokens of each are the row's; most first."""
        on_path = self.path[number] if number < len(self.path) else None
        if on_path is not None:
            yield on_path, on_path.tokens
        tails = self._tails_on_disk() if number == self._end else iter(())
        tail = next(tails, None)
        for shared, node in self._branches(number, whole=self.tiers.layout.recurrent):
            while tail is not None and tail.tokens >= shared:
                yield tail, tail.tokens
                tail = next(tails, None)
            if shared and (on_path is None or node.ref.block != on_path.block):
                found = {kind: self._in_ram(node, kind) for kind in node.entries}
                ref = node.ref
                yield Block(ref.block, ref.start, ref.tokens, found, node.donor), shared
        while tail is not None:
            yield tail, tail.tokens
            tail = next(tails, None)

    def _tails_on_disk(self) -> Iterator[Block]:
        """Tails that go on from the last of what there is, longest first. All lengths are tried."""
        layout, cold = self.tiers.layout, self.tiers.cold
        if not self._reads_disk or layout.recurrent:
            return
        start, kinds = self._end * layout.block_tokens, layout.kinds
        for length, hashed in self.keys.tails(self.tokens, self._end):
            names = {kind: entry_key(hashed, kind) for kind in kinds}
            if not any(map(cold.find, names.values())):
                continue
            block = self._block(hashed, start, length, names)
            if any(found.tier != "ram" for found in block.found.values()):
                yield block

    def _branches(self, number: int, *, whole: bool = False) -> Iterator[tuple[int, Node]]:
        """Children in RAM of the parent of this place; if `whole`, those that share all they have.

        What is not tokens has to agree as well.
        """
        index, size = self.tiers.index, self.tiers.layout.block_tokens
        parent, extra = self.keys.parent(number), self.keys.extra(number)
        if not index.children(parent):
            return
        packed = pack(self.tokens[number * size : (number + 1) * size])
        pairs: Iterator[tuple[int, Node]]
        if whole:
            pairs = ((node.ref.tokens, node) for node in index.prefixes(parent, packed))
        else:
            pairs = islice(index.nearest(parent, packed), MOST_BRANCHES)
        for shared, node in pairs:
            if node.ref.extra == extra:
                yield shared, node

    def _reach(self, number: int, block: Block, shared: int) -> int:
        """The deepest point inside the block from which every layer can go on; 0 = none."""
        layout = self.tiers.layout
        point = min(block.start + shared, self.limit)
        if point <= block.start or (layout.grows and "kv" not in block.found):
            return 0
        if layout.recurrent and (point != block.stop or "point" not in block.found):
            return 0
        if layout.window and max(0, point - layout.window + 1) < self._cover(number, block):
            return 0
        return point

    def _restore(self, number: int, last: Block, point: int) -> Restorable | None:
        """What it takes, or None if that finds no room in RAM."""
        layout, hot = self.tiers.layout, self.tiers.hot
        low = max(0, point - layout.window + 1) if layout.window else last.stop
        near = self.path[low // layout.block_tokens : number]  # whose windows are needed
        others = [_used(block, point, low)["window"] for block in near if block.stop > low]
        others += _used(last, point, low).values()
        if self._unread[number] or any(found.tier == "disk" for found in others):
            needs = self._needs[number] + sum(found.needs for found in others)
            if needs > hot.budget - hot.pinned_bytes - self.tiers.cold.loading_bytes:
                self.was_no_room = True
                return None
        return _gather([*self.path[:number], last], point, low)


def _used(block: Block, point: int, low: int) -> dict[EntryKind, Found]:
    """What a restore at `point` whose windows reach back to `low` takes of a block."""
    needed = {"kv": True, "window": block.stop > low, "point": block.stop == point}
    return {kind: found for kind, found in block.found.items() if needed[kind]}


def _gather(blocks: list[Block], point: int, low: int) -> Restorable:
    run, loads, pending, ssd_tokens = [], [], [], 0
    for block in blocks:
        used = _used(block, point, low)
        loads += [found.key for found in used.values() if found.tier == "disk"]
        pending += [found.key for found in used.values() if found.tier == "loading"]
        if any(found.counts_as_ssd for found in used.values()):
            ssd_tokens += min(block.stop, point) - block.start
        run.append(
            RunBlock(
                block=block.block,
                start=block.start,
                tokens=block.tokens,
                kv=_key(used.get("kv")),
                window=_key(used.get("window")),
                point=_key(used.get("point")),
            )
        )
    return Restorable(point, tuple(run), tuple(loads), tuple(pending), ssd_tokens, blocks[-1].donor)


def _key(found: Found | None) -> EntryKey | None:
    return None if found is None else found.key
