"""Which tails on disk a conversation has left behind."""

from __future__ import annotations

from omlxd.kv.chain_keys import ChainKeys
from omlxd.kv.disk_tails import DiskTails
from omlxd.kv.types import EntryKey, entry_key, root_hash

B = 4
ROOT = root_hash(b"test")


def added(tails: DiskTails, tokens: list[int]) -> EntryKey:
    """The tail that `tokens` end with."""
    keys = ChainKeys(ROOT, B)
    keys.extend(tokens)
    ref = keys.ref(tokens, len(tokens) // B, len(tokens))
    key = entry_key(ref.block, "kv")
    tails.add(ref, key)
    return key


def left_behind(tails: DiskTails, tokens: list[int], before: int) -> set[EntryKey]:
    keys = ChainKeys(ROOT, B)
    keys.extend(tokens)
    tails.check_integrity()
    return set(tails.left_behind(tokens, keys, before=before))


def test_tails_of_earlier_turns_are_left_behind() -> None:
    """Those on the row's path that end before its prompt does; its own are not."""
    tails, row = DiskTails(), list(range(20))
    first, second = added(tails, row[:6]), added(tails, row[:11])
    own = added(tails, row[:18])
    assert left_behind(tails, row, before=18) == {first, second}
    assert own not in left_behind(tails, row, before=18)


def test_another_conversations_tail_stays() -> None:
    """One that parts from the row, in its block or before it, is not on its path."""
    tails, row = DiskTails(), list(range(20))
    added(tails, [*row[:5], 99])
    added(tails, [99, *row[1:6]])
    assert left_behind(tails, row, before=18) == set()


def test_a_forgotten_tail_is_not_named_again() -> None:
    """Once removed, or lost, nothing is left of it."""
    tails, row = DiskTails(), list(range(20))
    key = added(tails, row[:6])
    tails.forget(key)
    tails.forget(key)
    assert left_behind(tails, row, before=18) == set()
