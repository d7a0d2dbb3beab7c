"""One entry, one safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from omlxd.kv.types import EntryKey
from omlxd.worker.piece import Piece

BadReason = Literal["absent", "truncated", "checksum", "header", "wrong key", "io"]


class BadEntry(Exception):
    """A file that gives no piece; `reason` is what to count it under."""

    def __init__(self, reason: BadReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


def write_entry(path: Path, key: EntryKey, piece: Piece) -> int:
    """Write or replace the file in one step; returns its bytes, raises OSError."""
    raise NotImplementedError


def read_entry(path: Path, key: EntryKey) -> Piece:
    """The piece, evaluated in this thread; raises BadEntry and nothing else."""
    raise NotImplementedError
