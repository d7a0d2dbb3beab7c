"""Which entries a row's caches should be cut for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omlxd.kv.chain_keys import BlockRef, ChainKeys
from omlxd.kv.entries import Node
from omlxd.kv.plans import Cut
from omlxd.kv.tiers import Tiers
from omlxd.kv.types import EntryKey, EntryKind, Layout, entry_key


def missing(
    tiers: Tiers, tokens: Sequence[int], keys: ChainKeys, *, computed: int, at_point: bool
) -> Iterator[Cut]:
    """Cuts for a row that has `computed` tokens, from the head of its path to its end.

    Windows are wanted of blocks that are new, as long as they come, and of those that a restore
    at `computed` needs, if what is held is too short for it. A point is wanted at `computed`
    alone, and so is a tail: only when `at_point`.
    """
    assert computed <= len(tokens), (computed, len(tokens))
    index, layout = tiers.index, tiers.layout
    keys.extend(tokens)
    full = computed // layout.block_tokens
    for number in range(full):
        node = index.get(keys.hashes[number])
        stop = (number + 1) * layout.block_tokens
        kinds = [
            kind
            for kind in _wanted(node, layout, stop=stop, computed=computed, at_point=at_point)
            if keys.name(number, kind) not in tiers.cold.loading
        ]
        if kinds:
            ref = keys.ref(tokens, number, stop)
            for kind in kinds:
                yield _cut(ref, kind, keys.name(number, kind), keys, computed)
    start = full * layout.block_tokens
    if at_point and start < computed:
        ref = keys.ref(tokens, full, computed)
        node = index.get(ref.block)
        for kind in _wanted(node, layout, stop=computed, computed=computed, at_point=True):
            yield _cut(ref, kind, entry_key(ref.block, kind), keys, computed)


def _wanted(
    node: Node | None, layout: Layout, *, stop: int, computed: int, at_point: bool
) -> Iterator[EntryKind]:
    held = node.entries if node is not None else {}
    is_new = layout.grows and "kv" not in held
    if is_new:
        yield "kv"
    if layout.window:
        start = (stop - 1) // layout.block_tokens * layout.block_tokens
        needed = stop - max(start, computed - layout.window + 1)
        window = held.get("window")
        if (is_new and window is None) or needed > (window.held if window is not None else 0):
            yield "window"
    if layout.recurrent and at_point and stop == computed and "point" not in held:
        yield "point"


def _cut(ref: BlockRef, kind: EntryKind, key: EntryKey, keys: ChainKeys, computed: int) -> Cut:
    return Cut(
        key=key,
        kind=kind,
        ref=ref,
        is_tail=ref.tokens < keys.block_tokens,
        is_newest=ref.stop == computed,
        chain=keys,
    )
