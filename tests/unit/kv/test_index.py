"""Children of a parent by what they share, against looking at all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omlxd.kv.chain_keys import BlockRef, pack
from omlxd.kv.entries import Node
from omlxd.kv.index import Index, shared_tokens
from omlxd.kv.types import chain, root_hash

PARENT = root_hash(b"namespace")
RUN = st.lists(st.integers(0, 1), min_size=1, max_size=4)
CHILDREN = st.lists(st.tuples(RUN, st.sampled_from([b"", b"image"])), max_size=12)


def node(tokens: list[int], extra: bytes) -> Node:
    block = chain(PARENT, tokens, extra)
    ref = BlockRef(block, PARENT, 0, len(tokens), pack(tokens), extra)
    return Node(ref, is_tail=False, donor=None)


def filed(children: list[tuple[list[int], bytes]]) -> Index:
    index = Index()
    for tokens, extra in children:
        child = node(tokens, extra)
        if index.get(child.ref.block) is None:
            index.add(child)
    return index


def common(a: list[int], b: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


@given(RUN, RUN)
def test_shared_tokens_counts_the_common_prefix(a: list[int], b: list[int]) -> None:
    """It is the number of first tokens that are equal."""
    assert shared_tokens(pack(a), pack(b)) == common(a, b)


@given(CHILDREN, RUN)
def test_nearest_gives_all_children_most_shared_first(
    children: list[tuple[list[int], bytes]], run: list[int]
) -> None:
    """Every child comes once, with what it shares, in falling order."""
    index = filed(children)
    found = list(index.nearest(PARENT, pack(run)))
    shares = [shared for shared, _ in found]
    assert shares == sorted(shares, reverse=True)
    assert {each.ref.block for _, each in found} == set(index.nodes)
    assert len(found) == len(index.nodes)
    for shared, each in found:
        assert shared == shared_tokens(each.ref.packed, pack(run))


@given(CHILDREN, RUN)
def test_prefixes_gives_the_children_that_are_wholly_shared(
    children: list[tuple[list[int], bytes]], run: list[int]
) -> None:
    """Exactly those whose tokens the run begins with, longest first."""
    index = filed(children)
    found = list(index.prefixes(PARENT, pack(run)))
    expected = [each for each in index.nodes.values() if pack(run).startswith(each.ref.packed)]
    assert {each.ref.block for each in found} == {each.ref.block for each in expected}
    assert len(found) == len(expected)
    lengths = [each.ref.tokens for each in found]
    assert lengths == sorted(lengths, reverse=True)


@given(CHILDREN, st.data())
def test_what_is_removed_is_not_found(
    children: list[tuple[list[int], bytes]], data: st.DataObject
) -> None:
    """A removed child is in no answer, and a parent without children is forgotten."""
    index = filed(children)
    for _ in range(data.draw(st.integers(0, len(index.nodes)))):
        gone = data.draw(st.sampled_from(sorted(index.nodes)))
        index.remove(index.nodes[gone])
    assert {each.ref.block for each in index.children(PARENT)} == set(index.nodes)
    assert index.parents() == ((PARENT,) if index.nodes else ())
