"""The folder of one namespace on disk, behind threads of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omlxd.kv.types import EntryKey
from omlxd.worker.piece import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The one answer to a write or a read; to a touch only if the file is gone."""

    op: Literal["write", "read", "touch"]
    key: EntryKey
    reason: str = ""  # empty = it went well
    detail: str = ""
    piece: Piece | None = None  # of a read that went well
    nbytes: int = 0  # of the file
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Lost:
    """What `close` had no time to write."""

    entries: int
    nbytes: int


class ColdStore:
    """`on_done` is called on an I/O thread and only enqueues; all methods are thread-safe."""

    def __init__(
        self,
        folder: Path,
        *,
        on_done: Callable[[Done], None],
        min_free_bytes: int = 0,
        queue_bytes: int = 256 << 20,
        threads: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        raise NotImplementedError

    @property
    def degraded(self) -> str:
        """Why nothing is written at present; empty if all is well."""
        raise NotImplementedError

    @property
    def queued_bytes(self) -> int:
        raise NotImplementedError

    def set_min_free(self, nbytes: int) -> None:
        raise NotImplementedError

    def list(self) -> Iterator[tuple[EntryKey, int]]:
        raise NotImplementedError

    def write(self, key: EntryKey, piece: Piece) -> None:
        raise NotImplementedError

    def read(self, key: EntryKey) -> None:
        raise NotImplementedError

    def touch(self, keys: Sequence[EntryKey]) -> None:
        """Make these the newest, the last one newest of all: give them tail to head."""
        raise NotImplementedError

    def close(self, deadline_s: float) -> Lost:
        raise NotImplementedError
