"""What one entry of a block is in RAM: a few arrays, each owning its buffer."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from omlxd.kv.types import EntryKind

# How pages.py packs arrays and entry_file.py writes them; part of the namespace.
LAYOUT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """Evaluated, immutable, shared by everyone who restores from it; safe in any thread.

    `arrays` are in the order of the model's groups (see pages.py): (leaves, heads, tokens, width)
    for `kv` and `window`, (leaves, …) for `point`.
    """

    kind: EntryKind
    tokens: int  # held, up to the block's end; a window may hold less than its block, a point 0
    arrays: tuple[mx.array, ...]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPieces:
    """One block of a run, with the pieces of it that there are."""

    tokens: int  # of the whole block, also where the point lies inside
    kv: Piece | None = None
    window: Piece | None = None
    point: Piece | None = None
