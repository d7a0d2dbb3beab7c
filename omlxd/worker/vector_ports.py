"""What the side that serves vectors and scores needs of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from omlxd.ipc.messages import LoadSettings
from omlxd.ipc.vectors import EmbedRequest, Score, ScoreRequest, Vector

Row = Sequence[int]  # token ids of one input, special tokens included
VectorRequest = EmbedRequest | ScoreRequest


class VectorModel(Protocol):
    """One encoder, and MLX; used by one thread."""

    @property
    def weights_bytes(self) -> int: ...

    @property
    def max_context(self) -> int:
        """Tokens of one input, special tokens included."""
        ...

    def rows(self, request: VectorRequest) -> list[Row]:
        """One per input. Raises RequestInvalid, also for a request of the wrong kind."""
        ...

    def compute(self, rows: Sequence[Row]) -> list[list[float]]:
        """What the model makes of each input; of several as of each alone."""
        ...

    def answer(self, request: VectorRequest, index: int, values: list[float]) -> Vector | Score:
        """The event for one input. Raises EngineFailed for what is no number."""
        ...


# Raises LoadError.
LoadVectorModel = Callable[[LoadSettings], VectorModel]
