"""A row's hashes: extended, never made again; and what tells one block from another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.kv import chain_keys
from omlxd.kv.chain_keys import ChainKeys, pack, shared_ahead
from omlxd.kv.types import BlockHash, chain, entry_key, root_hash

ROOT = root_hash(b"namespace")
TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def keys_of(tokens: list[int], *, extra: dict[int, bytes] | None = None) -> ChainKeys:
    keys = ChainKeys(ROOT, 4, extra or {})
    keys.extend(tokens)
    return keys


@given(TOKENS, st.data())
def test_hashes_do_not_depend_on_how_the_tokens_came(
    tokens: list[int], data: st.DataObject
) -> None:
    """Extended in any steps, a row has the hashes of a chain over its full blocks."""
    keys = ChainKeys(ROOT, 4)
    for stop in sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=4))):
        keys.extend(tokens[:stop])
    keys.extend(tokens)
    parent, expected = ROOT, []
    for start in range(0, len(tokens) // 4 * 4, 4):
        parent = chain(parent, tokens[start : start + 4])
        expected.append(parent)
    assert keys.hashes == expected


def test_nothing_is_hashed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every full block is hashed once, however often the row is extended and its names asked."""
    hashed: list[tuple[int, ...]] = []

    def counting(parent: BlockHash, tokens: list[int], extra: bytes = b"") -> BlockHash:
        hashed.append(tuple(tokens))
        return chain(parent, tokens, extra)

    monkeypatch.setattr(chain_keys, "chain", counting)
    keys = ChainKeys(ROOT, 4)
    for stop in (3, 4, 9, 9, 12):
        keys.extend(list(range(stop)))
    keys.ref(list(range(12)), 1, 8)
    assert hashed == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]


def test_a_blocks_names_are_those_of_its_hash() -> None:
    """A full block's entries are named by kind, and a tail has its own hash under its parent."""
    tokens = list(range(10))
    keys = keys_of(tokens)
    assert keys.name(1, "kv") == entry_key(keys.hashes[1], "kv")
    assert keys.name(1, "point") == entry_key(keys.hashes[1], "point")
    tail = keys.ref(tokens, 2, 10)
    assert (tail.start, tail.stop, tail.parent) == (8, 10, keys.hashes[1])
    assert tail.block == chain(keys.hashes[1], [8, 9])


def test_extra_counts_from_its_block_on() -> None:
    """An image in the second block changes that block and all behind it, not the one before."""
    tokens = list(range(12))
    plain, image = keys_of(tokens), keys_of(tokens, extra={1: b"cat"})
    same = [a == b for a, b in zip(plain.hashes, image.hashes, strict=True)]
    assert same == [True, False, False]
    assert keys_of(tokens, extra={1: b"dog"}).hashes[1] != image.hashes[1]


def test_namespaces_share_nothing() -> None:
    """The same tokens under two namespaces have different hashes."""
    other = ChainKeys(root_hash(b"other"), 4)
    other.extend(list(range(4)))
    assert other.hashes != keys_of(list(range(4))).hashes


@given(TOKENS, TOKENS, TOKENS)
def test_shared_ahead_is_the_common_prefix_in_whole_blocks(
    head: list[int], one: list[int], two: list[int]
) -> None:
    """It is what comparing block by block gives."""
    a, b = head + one, head + two
    blocks = 0
    while (blocks + 1) * 4 <= min(len(a), len(b)) and (
        a[: (blocks + 1) * 4] == b[: (blocks + 1) * 4]
    ):
        blocks += 1
    assert shared_ahead(keys_of(a), keys_of(b)) == blocks * 4


@given(TOKENS, TOKENS)
def test_packed_tokens_sort_as_tokens_do(a: list[int], b: list[int]) -> None:
    """Order of the bytes is order of the tokens."""
    assert (pack(a) < pack(b)) == (a < b)
