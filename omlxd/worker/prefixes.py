"""The port between the engine loop and the prefix cache; everything on the engine thread.

Nothing here raises for what is stored, or cannot be: a cache that fails is a cache that misses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from omlxd.ipc.messages import CacheCommand, CacheDone, LiveSettings, PrefixMatch
from omlxd.kv.types import Layout
from omlxd.worker.lanes import RowCaches
from omlxd.worker.ports import CacheFrame


@dataclass(frozen=True, slots=True)
class Sought:
    """So many of a row's tokens can be restored: now if ready, else once they have been read."""

    tokens: int
    is_ready: bool = True


@dataclass(frozen=True, slots=True)
class Restored:
    """Plain caches that hold the row's first tokens, `match.ram + match.ssd` of them."""

    caches: Sequence[Any] | None
    match: PrefixMatch

    @property
    def tokens(self) -> int:
        return self.match.ram + self.match.ssd


class RowPrefix(Protocol):
    """One row's place in the prefix cache, from its submission to its end."""

    def seek(self, tokens: Sequence[int]) -> Sought:
        """Look for the longest prefix; starts to read what of it is on disk only."""
        ...

    def restore(self) -> Restored:
        """Caches for what the last `seek` found ready, which was in this very pass."""
        ...

    def store(
        self,
        read: Callable[[], RowCaches | None],
        *,
        at_point: bool,
        growing: bool,
        upto: int | None = None,
    ) -> None:
        """Take what is not there yet of the caches that `read` gives.

        `at_point`: a later request may go on right there. `growing` False leaves out the layers
        that keep every token: they can be cut later. `upto`: of so many tokens; None = of all.
        """
        ...

    def shared(self, other: RowPrefix) -> int:
        """Tokens of the common prefix, in whole blocks."""
        ...

    def close(self) -> None:
        """The row needs nothing more."""
        ...


class Prefixes(Protocol):
    @property
    def layout(self) -> Layout | None:
        """None = nothing is kept at present."""
        ...

    def open(self, request_id: str) -> RowPrefix: ...

    def take_arrived(self) -> Sequence[RowPrefix]:
        """Rows whose reads have ended since the last call."""
        ...

    def configure(self, live: LiveSettings) -> None: ...

    def command(self, command: CacheCommand) -> None: ...

    def tend(self, now: float) -> float | None:
        """Tell what has changed, at most once a second, and give up reads that hang.

        Seconds until there is more to do, if nothing happens meanwhile; None = nothing.
        """
        ...

    def close(self) -> None:
        """Write what can be written within the time there is."""
        ...


class NoPrefixes:
    """For a model whose caches cannot be cut."""

    def __init__(self, send: Callable[[CacheFrame], None]) -> None:
        self._send = send
        self.layout: Layout | None = None

    def open(self, request_id: str) -> RowPrefix:
        raise AssertionError(f"no prefix of {request_id} can be kept")

    def take_arrived(self) -> Sequence[RowPrefix]:
        return ()

    def configure(self, live: LiveSettings) -> None:
        """Nothing of this is about it."""

    def command(self, command: CacheCommand) -> None:
        self._send(CacheDone(command.command_id, 0, 0))

    def tend(self, now: float) -> float | None:
        return None

    def close(self) -> None:
        """There is nothing to write."""
