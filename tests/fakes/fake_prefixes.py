"""A prefix cache without arrays: it remembers token lists, and reads when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omlxd.ipc.messages import CacheCommand, LiveSettings, PrefixMatch
from omlxd.kv.types import Layout
from omlxd.worker.lanes import RowCaches
from omlxd.worker.prefixes import Restored, RowPrefix, Sought

BLOCK = 4


def common(a: Sequence[int], b: Sequence[int]) -> int:
    pairs = zip(a, b, strict=False)
    return next((at for at, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


class FakePrefixes:
    """Implements `prefixes.Prefixes`; `stored` in RAM, `on_disk` to be read first."""

    def __init__(self, *, recurrent: bool = False) -> None:
        self.layout: Layout | None = Layout(block_tokens=BLOCK, grows=True, recurrent=recurrent)
        self.stored: list[list[int]] = []
        self.on_disk: list[list[int]] = []
        self.rows: list[FakeRow] = []
        self.is_closed = False
        self._arrived: list[RowPrefix] = []

    def open(self, request_id: str) -> FakeRow:
        self.rows.append(FakeRow(self, request_id))
        return self.rows[-1]

    def finish_reads(self) -> None:
        """All that is on disk is in RAM from here on."""
        self.stored += self.on_disk
        self.on_disk = []
        for row in self.rows:
            if row.is_reading:
                row.is_reading = False
                self._arrived.append(row)

    def take_arrived(self) -> Sequence[RowPrefix]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def configure(self, live: LiveSettings) -> None:
        if live.hot_bytes == 0:
            self.layout = None

    def command(self, command: CacheCommand) -> None:
        self.stored.clear()

    def tend(self, now: float) -> float | None:
        return None

    def close(self) -> None:
        self.is_closed = True


class FakeRow:
    """Implements `prefixes.RowPrefix`; its tokens are known from the last `seek`."""

    def __init__(self, cache: FakePrefixes, request_id: str) -> None:
        self.cache, self.request_id = cache, request_id
        self.tokens: list[int] = []
        self.is_reading = False
        self.is_closed = False

    def seek(self, tokens: Sequence[int]) -> Sought:
        self.tokens = list(tokens)
        if self.cache.layout is None:
            return Sought(0)
        hot, disk = self._deepest(self.cache.stored), self._deepest(self.cache.on_disk)
        self.is_reading = self.is_reading or disk > hot
        return Sought(max(hot, disk), is_ready=not self.is_reading)

    def restore(self) -> Restored:
        assert not self.is_reading
        point = self._deepest(self.cache.stored)
        return Restored([self.tokens[:point]] if point else None, PrefixMatch(ram=point))

    def store(
        self,
        read: Callable[[], RowCaches | None],
        *,
        at_point: bool,
        growing: bool,
        upto: int | None = None,
    ) -> None:
        row = read()
        if row is not None and self.cache.layout is not None:
            assert row.caches == [row.tokens]
            self.cache.stored.append(row.tokens)

    def shared(self, other: RowPrefix) -> int:
        assert isinstance(other, FakeRow)
        return common(self.tokens, other.tokens) // BLOCK * BLOCK

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True

    def _deepest(self, lists: Sequence[Sequence[int]]) -> int:
        return max((common(each, self.tokens[:-1]) for each in lists), default=0)
