"""In which order blocks leave RAM.

1. A block goes before those it hangs on: only *free* nodes go, that is leaves nobody has pinned.
   When a leaf goes its parent is free, with its own, older stamp: a path goes from its end on.
2. A node is on *probation* until a later request uses it, then it is *protected*. Those on
   probation go first, so that one huge prompt does not flush what several turns have used.
3. Protection covers at most `PROTECTED_SHARE` of the budget, and ends `PROTECTED_IDLE_S` after
   the last use: the longest unused is put back on probation, as its newest.
4. Within both, the least recently stored or used goes first.

Every operation is O(log n): the heaps hold free nodes, and items that no longer hold are skipped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from omlxd.kv.entries import Node
from omlxd.kv.types import BlockHash

PROTECTED_SHARE = 0.8
PROTECTED_IDLE_S = 900.0

Heap = list[tuple[int, Node]]  # by stamp; stamps are never used twice


class EvictionOrder:
    def __init__(
        self, nodes: Mapping[BlockHash, Node], *, has_children: Callable[[BlockHash], bool]
    ) -> None:
        self.protected: OrderedDict[BlockHash, Node] = OrderedDict()  # longest unused first
        self.protected_bytes = 0
        self._nodes = nodes
        self._has_children = has_children
        self._probation_heap: Heap = []
        self._protected_heap: Heap = []
        self._stamps = 0

    def __len__(self) -> int:
        """Items in the heaps, also those that no longer hold."""
        return len(self._probation_heap) + len(self._protected_heap)

    def is_free(self, node: Node) -> bool:
        """Whether it may go: nothing pinned, nothing hangs on it."""
        return node.stamp > 0 and node.pinned == 0 and not self._has_children(node.ref.block)

    def stored(self, node: Node, now: float) -> None:
        """One of its entries is new: it is the newest of its class."""
        node.touched = now
        self._restamp(node)
        if node.is_protected:
            self.protected.move_to_end(node.ref.block)

    def used(self, node: Node, now: float) -> None:
        """A later request used it. To be called from the end of a path to its head."""
        if not node.is_protected:
            node.is_protected = True
            self.protected[node.ref.block] = node
            self.protected_bytes += node.nbytes
        self.stored(node, now)

    def grew(self, node: Node, nbytes: int) -> None:
        """Its entries take so many bytes more (or less)."""
        node.nbytes += nbytes
        if node.is_protected:
            self.protected_bytes += nbytes

    def freed(self, node: Node) -> None:
        """It may have become free."""
        if self.is_free(node) and node.queued != node.stamp:
            node.queued = node.stamp
            heap = self._protected_heap if node.is_protected else self._probation_heap
            heappush(heap, (node.stamp, node))
            self._compact(heap)

    def remove(self, node: Node) -> None:
        if node.is_protected:
            self._unprotect(node)
        node.stamp = node.queued = 0

    def demote(self, most_bytes: int, now: float) -> None:
        """Keep rule 3 for a budget that allows `most_bytes` to be protected."""
        while self.protected:
            node = next(iter(self.protected.values()))
            idle = now - node.touched > PROTECTED_IDLE_S
            if self.protected_bytes <= most_bytes and not idle:
                return
            self._unprotect(node)
            self._restamp(node)

    def first(self, *, sparing: bool) -> Node | None:
        """The next to go; when `sparing`, none that is protected."""
        node = self._first(self._probation_heap)
        return node if node is not None or sparing else self._first(self._protected_heap)

    def _first(self, heap: Heap) -> Node | None:
        while heap:
            stamp, node = heap[0]
            if stamp == node.stamp:
                if self.is_free(node):
                    return node
                node.queued = 0
            heappop(heap)
        return None

    def _restamp(self, node: Node) -> None:
        self._stamps += 1
        node.stamp = self._stamps
        self.freed(node)

    def _unprotect(self, node: Node) -> None:
        node.is_protected = False
        del self.protected[node.ref.block]
        self.protected_bytes -= node.nbytes

    def _compact(self, heap: Heap) -> None:
        """Keep what no longer holds from piling up."""
        if len(heap) > 2 * len(self._nodes) + 64:
            heap[:] = [(stamp, node) for stamp, node in heap if stamp == node.stamp]
            heapify(heap)

    def check_integrity(self) -> None:
        assert self.protected_bytes == sum(node.nbytes for node in self.protected.values())
        queued = {id(node) for _, node in (*self._probation_heap, *self._protected_heap)}
        for node in self._nodes.values():
            assert node.is_protected == (node.ref.block in self.protected), node.ref
            if self.is_free(node):
                assert node.queued == node.stamp, node.ref
                assert id(node) in queued, node.ref
