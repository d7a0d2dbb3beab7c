"""The words that the cache core and the worker's pages share.

A *block* is `block_tokens` tokens under a parent; a *tail* is a shorter one, where a row ended.
What is kept for a block is up to three *entries*, by what kind of layer they serve:

- `kv`: keys and values of the layers that keep every token, for the block's tokens;
- `window`: the same of sliding-window layers; it may hold only the block's last tokens;
- `point`: the state of recurrent layers at exactly the block's end.

A model has the entries its layers need (`Layout`); an entry is in RAM, on disk, in both or neither.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NewType

BlockHash = NewType("BlockHash", bytes)  # 32 bytes; chained over tokens, seeded by the namespace
EntryKey = NewType("EntryKey", bytes)  # 32 bytes; names the entry in every tier, and its file
EntryKind = Literal["kv", "window", "point"]
TOKEN_BYTES = 4  # of a packed token
ENTRY_KINDS: tuple[EntryKind, ...] = ("kv", "window", "point")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which entries a model's blocks have."""

    block_tokens: int
    grows: bool  # some layers keep every token
    window: int = 0  # the longest sliding window in tokens; 0 = no such layer
    recurrent: bool = False  # some layers have a state that cannot be cut

    @property
    def kinds(self) -> tuple[EntryKind, ...]:
        has = {"kv": self.grows, "window": self.window > 0, "point": self.recurrent}
        return tuple(kind for kind in ENTRY_KINDS if has[kind])


def root_hash(namespace: bytes) -> BlockHash:
    """The parent of every first block of a namespace."""
    return BlockHash(hashlib.blake2b(namespace, digest_size=32, person=b"omlxd-root").digest())


def chain(parent: BlockHash, tokens: Sequence[int], extra: bytes = b"") -> BlockHash:
    """Hash of the block that holds `tokens` under `parent`.

    `extra` is what else decides the block's KV: digests of the images whose tokens lie in it.
    """
    return chain_packed(parent, struct.pack(f"<{len(tokens)}I", *tokens), extra)


def chain_packed(parent: BlockHash, packed: bytes, extra: bytes) -> BlockHash:
    """`chain` of tokens that are packed already, four bytes each, least significant first."""
    digest = hashlib.blake2b(key=parent, digest_size=32, person=b"omlxd-block")
    digest.update((len(packed) // TOKEN_BYTES).to_bytes(4, "little"))
    digest.update(packed)
    digest.update(extra)
    return BlockHash(digest.digest())


def entry_key(block: BlockHash, kind: EntryKind) -> EntryKey:
    """The entry's name. The `kv` entry has the block's own hash."""
    if kind == "kv":
        return EntryKey(bytes(block))
    return EntryKey(hashlib.blake2b(kind.encode(), key=block, digest_size=32).digest())
