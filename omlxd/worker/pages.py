"""Pieces cut out of plain mlx-lm caches, and joined into plain caches again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from omlxd.kv.types import EntryKind, Layout
from omlxd.worker.piece import Piece


class PagesError(Exception):
    """Caches or pieces that are not what this model's are; a fault of ours or of a file."""


class Span(Protocol):
    """What to cut: one entry of one block."""

    @property
    def kind(self) -> EntryKind: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPieces:
    """One block of a run, with the pieces of it that there are."""

    tokens: int  # of the whole block, also where the point lies inside
    kv: Piece | None = None
    window: Piece | None = None
    point: Piece | None = None


class Pages:
    """How one model's caches are cut and joined. Stateless after `inspect`."""

    @classmethod
    def inspect(cls, model: Any) -> Pages | str:
        """The pages of a model, or why its prefixes cannot be reused."""
        raise NotImplementedError

    def layout(self, block_tokens: int) -> Layout:
        raise NotImplementedError

    def cut(
        self, caches: Sequence[Any], spans: Sequence[Span], computed: int
    ) -> list[Piece | None]:
        """One piece per span, in one evaluation; None where these caches do not hold it."""
        raise NotImplementedError

    def join(self, point: int, run: Sequence[BlockPieces]) -> list[Any]:
        """Plain caches that stand at `point` tokens, evaluated; raises PagesError."""
        raise NotImplementedError
