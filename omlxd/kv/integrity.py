"""What has to hold between calls, over all parts."""

from __future__ import annotations

from itertools import pairwise

from omlxd.kv.index import Index
from omlxd.kv.tiers import Tiers


def check(tiers: Tiers) -> None:
    tiers.hot.check_integrity()
    tiers.cold.check_integrity()
    _check_children(tiers.index)
    for key in tiers.cold.dirty_keys():
        entry = tiers.hot.entries[key]  # what is to be written is in RAM
        assert not (entry.node.is_tail and tiers.layout.recurrent), entry.node.ref
        assert entry.node.is_tail or not entry.is_spent, entry.node.ref
    for node in tiers.index.nodes.values():
        assert node.is_tail == (node.ref.tokens < tiers.layout.block_tokens), node.ref
        assert set(node.entries) <= set(tiers.layout.kinds), node.ref
        for kind, entry in node.entries.items():
            assert kind == "window" or entry.held == node.ref.tokens, node.ref
            assert 0 < entry.held <= node.ref.tokens, node.ref


def _check_children(index: Index) -> None:
    filed = 0
    for parent in index.parents():
        children = index.children(parent)
        assert children, parent.hex()
        filed += len(children)
        for child in children:
            assert child.ref.parent == parent
            assert index.get(child.ref.block) is child
        for one, two in pairwise(children):
            assert (one.ref.packed, one.ref.block) < (two.ref.packed, two.ref.block)
    assert filed == len(index.nodes)
