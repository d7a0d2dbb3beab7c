"""What a conversation no longer needs once it has moved on.

A path is one conversation's blocks and the tails that its tokens go through. Of it are spent:

- points beyond the newest `KEPT_POINTS` that nobody used, and beyond as many used once. Those
  used twice are where conversations part, and stay. `KEPT_POINTS` covers a turn: the last
  boundary and the end, of the prompt and of the reply;
- windows that nobody used and no kept restore point needs: the newest end of the path and the
  ends of its tails; where there are points, those that are kept;
- tails that a longer block holds too, if no layer needs more than that.

Spent entries still serve. They go before all others, and are not written to disk; but tails are,
see `disk_tails`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from omlxd.kv.chain_keys import BlockRef, ChainKeys
from omlxd.kv.entries import Entry, Node
from omlxd.kv.index import Index
from omlxd.kv.types import Layout

KEPT_POINTS = 4


def path_of(index: Index, newest: BlockRef, keys: ChainKeys) -> list[Node]:
    """Nodes of the path that ends with `newest`, by where they end, newest first."""
    path: list[Node] = []
    for number in range(newest.start // keys.block_tokens, -1, -1):
        start = number * keys.block_tokens
        node = index.get(newest.block if start == newest.start else keys.hashes[number])
        if node is None:
            continue  # its tokens are not known, nor are the tails they go through
        siblings = index.children(keys.parent(number))
        if len(siblings) > 1:  # the node itself is among its prefixes
            path.extend(index.prefixes(node.ref.parent, node.ref.packed))
        else:
            path.append(node)
    return path


def superseded(path: Sequence[Node], layout: Layout) -> list[Entry]:
    """Entries of a path, given newest first, that are spent now and were not; oldest first."""
    return [entry for entry in _superseded(path, layout) if not entry.is_spent][::-1]


def _superseded(path: Sequence[Node], layout: Layout) -> Iterator[Entry]:
    ends = {path[0].stop} | {node.stop for node in path if node.is_tail}
    if layout.recurrent:
        spent = {entry.node.stop: entry for entry in _spent_points(path)}
        yield from spent.values()
        points = {node.stop for node in path if "point" in node.entries}
        ends = points - spent.keys()
    if layout.window:
        yield from _spent_windows(path, sorted(ends), layout.window)
    elif not layout.recurrent:
        yield from (entry for node in path[1:] if node.is_tail for entry in node.entries.values())


def _spent_points(path: Sequence[Node]) -> Iterator[Entry]:
    seen: Counter[int] = Counter()  # by hits
    for node in path:
        point = node.entries.get("point")
        if point is not None and point.hits < 2:
            seen[point.hits] += 1
            if seen[point.hits] > KEPT_POINTS:
                yield point


def _spent_windows(path: Sequence[Node], ends: list[int], window: int) -> Iterator[Entry]:
    """`ends` are restore points in order; one inside a block needs that block too."""
    lowest = path[0].stop  # what the restore points passed so far reach back to
    for node in path:
        while ends and ends[-1] > node.ref.start:
            lowest = min(lowest, ends.pop() - window + 1)
        entry = node.entries.get("window")
        if entry is not None and entry.hits == 0 and node.stop <= lowest:
            yield entry
