"""The tree of blocks in RAM: by hash, and the children of every parent by their tokens.

Children are kept sorted by tokens, so those that share most with a given run of tokens are
neighbours: nothing here looks at all children of a parent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence

from omlxd.kv.entries import Node
from omlxd.kv.types import TOKEN_BYTES, BlockHash


class Index:
    """Parents need not be in RAM themselves: children hang on their hash."""

    def __init__(self) -> None:
        self.nodes: dict[BlockHash, Node] = {}
        self._children: dict[BlockHash, list[Node]] = {}

    def get(self, block: BlockHash) -> Node | None:
        return self.nodes.get(block)

    def children(self, parent: BlockHash) -> Sequence[Node]:
        return self._children.get(parent, ())

    def parents(self) -> Sequence[BlockHash]:
        return tuple(self._children)

    def add(self, node: Node) -> None:
        assert node.ref.block not in self.nodes, node.ref
        self.nodes[node.ref.block] = node
        insort(self._children.setdefault(node.ref.parent, []), node, key=_order)

    def remove(self, node: Node) -> None:
        del self.nodes[node.ref.block]
        siblings = self._children[node.ref.parent]
        at = bisect_left(siblings, _order(node), key=_order)
        assert siblings[at] is node, node.ref
        del siblings[at]
        if not siblings:
            del self._children[node.ref.parent]

    def nearest(self, parent: BlockHash, packed: bytes) -> Iterator[tuple[int, Node]]:
        """Children by how many first tokens they share with `packed`, most first."""
        siblings = self.children(parent)
        right = bisect_left(siblings, packed, key=_packed)
        left = right - 1
        before = shared_tokens(_packed(siblings[left]), packed) if left >= 0 else -1
        after = shared_tokens(_packed(siblings[right]), packed) if right < len(siblings) else -1
        while before >= 0 or after >= 0:
            if before > after:
                yield before, siblings[left]
                left -= 1
                before = shared_tokens(_packed(siblings[left]), packed) if left >= 0 else -1
            else:
                yield after, siblings[right]
                right += 1
                in_range = right < len(siblings)
                after = shared_tokens(_packed(siblings[right]), packed) if in_range else -1

    def prefixes(self, parent: BlockHash, packed: bytes) -> Iterator[Node]:
        """Children all of whose tokens `packed` begins with, longest first."""
        siblings = self.children(parent)
        at = bisect_right(siblings, packed, key=_packed) - 1
        while at >= 0:
            node = siblings[at]
            shared = shared_tokens(_packed(node), packed)
            if shared == node.ref.tokens:
                yield node
                at -= 1
            elif shared == 0:
                return
            else:  # a prefix longer than `shared` would lie between this one and `packed`
                at = bisect_right(siblings, packed[: shared * TOKEN_BYTES], hi=at, key=_packed) - 1


def shared_tokens(a: bytes, b: bytes) -> int:
    """Length of the common prefix of two packed runs of tokens."""
    most = min(len(a), len(b)) // TOKEN_BYTES
    if a[: most * TOKEN_BYTES] == b[: most * TOKEN_BYTES]:
        return most

    def differ(count: int) -> bool:
        return a[: count * TOKEN_BYTES] != b[: count * TOKEN_BYTES]

    return bisect_left(range(most + 1), True, key=differ) - 1


def _packed(node: Node) -> bytes:
    return node.ref.packed


def _order(node: Node) -> tuple[bytes, BlockHash]:
    return node.ref.packed, node.ref.block
