"""The prefix cache of one engine: core, pages and cold tier put together.

The core decides by hashes and bytes, `Pages` cuts and joins arrays, the cold tier reads and writes
them in threads of its own. All of this runs on the engine thread and implements `prefixes`.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from omlxd.ipc.messages import CacheCommand, CacheDone, LiveSettings, PrefixMatch
from omlxd.kv.cache import KvCache
from omlxd.kv.chain_keys import shared_ahead
from omlxd.kv.plans import Match
from omlxd.kv.types import EntryKey, Layout
from omlxd.worker.lanes import RowCaches
from omlxd.worker.pages import Pages
from omlxd.worker.ports import CacheFrame
from omlxd.worker.prefix_cold import ColdShelf, Post, ReadRate
from omlxd.worker.prefix_hot import HotPieces
from omlxd.worker.prefix_report import Reporter
from omlxd.worker.prefixes import Restored, RowPrefix, Sought

ROOM_TOKENS = 256  # of output, after a restored row's prompt: as much as mlx-lm's caches grow by
CUT_AT_ONCE = 32  # entries; bounds what a cut needs beside what it gives
LOADS_PER_ROW = 2  # when it comes, and once more if much has changed when its turn comes
PATIENCE_S = 10.0  # for reads; a disk may hang for minutes
FLUSH_S = 3.0  # of the time a worker has to end
LIST_WAIT_S = 5.0  # for what is on disk, before the first request; 100,000 entries take one

NOTHING = Sought(0)


@dataclass(frozen=True, slots=True)
class Rates:
    """Whether reading pays: both sides in seconds per token, None = not measured."""

    read: ReadRate
    prefill_token_s: Callable[[], float | None]

    def reading_loses(self, now: float) -> str:
        """Why running the tokens is known to be quicker; empty if it is not known."""
        read_s, run_s = self.read.token_s(now), self.prefill_token_s()
        if read_s is None or run_s is None or read_s <= run_s:
            return ""
        return f"reading takes {read_s * 1e3:.2f} ms a token, running it {run_s * 1e3:.2f} ms"


class PrefixCache:
    """Implements `prefixes.Prefixes`."""

    def __init__(
        self,
        pages: Pages,
        *,
        layout: Layout,
        namespace: bytes,
        cold_folder: Path | None,  # of this namespace
        post: Post,
        send: Callable[[CacheFrame], None],
        prefill_token_s: Callable[[], float | None],
        clock: Callable[[], float],
    ) -> None:
        self.pages, self.clock = pages, clock
        self.core = KvCache(layout, namespace, hot_bytes=0)
        self.hot = HotPieces(self.core, clock)
        self.cold = ColdShelf(cold_folder, hot=self.hot, post=post, on_read=self._on_read)
        self.rates = Rates(ReadRate(), prefill_token_s)
        self.reporter = Reporter(namespace.hex(), hot=self.hot, cold=self.cold, send=send)
        self._layout, self._send = layout, send
        self._hot_bytes = 0
        self._reading: list[CachedRow] = []
        self._arrived: list[RowPrefix] = []

    @property
    def layout(self) -> Layout | None:
        return self._layout if self._hot_bytes > 0 else None

    def open(self, request_id: str) -> CachedRow:
        return CachedRow(self, request_id)

    def take_arrived(self) -> Sequence[RowPrefix]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def configure(self, live: LiveSettings) -> None:
        self._hot_bytes = live.hot_bytes
        self.hot.drop(self.core.resize(live.hot_bytes), "budget")
        self.cold.configure(live)

    def await_disk(self) -> None:
        """Before the first request, which may be for what an earlier worker has stored."""
        self.cold.await_list(LIST_WAIT_S)

    def command(self, command: CacheCommand) -> None:
        if command.op == "clear":
            # What is being written now would outlive the answer, and be found again.
            self.cold.once_written(lambda: self._clear(command))
        else:
            self._clear(command)

    def _clear(self, command: CacheCommand) -> None:
        entries, nbytes = len(self.hot), self.hot.nbytes
        if command.op == "clear":
            self.hot.drop(self.core.clear(), "cleared")
        else:
            self.hot.drop(self.core.resize(0), "cleared")
            self.hot.drop(self.core.resize(self._hot_bytes), "cleared")
        self._send(CacheDone(command.command_id, entries - len(self.hot), nbytes - self.hot.nbytes))

    def tend(self, now: float) -> float | None:
        for row in list(self._reading):
            if row.reads_hang(now):
                self.stop_reads(row)
                self._arrived.append(row)
        reports = self.reporter.report(now)
        waits = [row.patience_s(now) for row in self._reading]
        return min([*waits, *([] if reports is None else [reports])], default=None)

    def close(self) -> None:
        lost = self.cold.close(FLUSH_S)
        if lost.entries or lost.hung_threads:
            sys.stderr.write(
                f"{lost.entries} cache entries ({lost.nbytes} bytes) were not written to disk in"
                f" {FLUSH_S:g} s; {lost.hung_threads} threads still wait for it\n"
            )

    # ------------------------------------------------------------------ for rows

    def begin_reads(self, row: CachedRow, match: Match, tokens: Sequence[int]) -> None:
        self.core.begin_load(match, tokens, row.keys)
        self._reading.append(row)
        self.cold.read(match)

    def stop_reads(self, row: CachedRow) -> None:
        """It does not care for them any more; what comes is kept all the same."""
        self._reading = [each for each in self._reading if each is not row]

    def _on_read(self, key: EntryKey) -> None:
        for row in list(self._reading):
            if row.has_read(key):
                self.stop_reads(row)
                self._arrived.append(row)

    def failed(self, what: str) -> None:
        """The row goes on without; this says why, once for each kind of failure."""
        if self.reporter.count_failure(what) == 1:
            sys.stderr.write(f"prefix cache: {what} failed; the request is served without\n")
            traceback.print_exc(file=sys.stderr)


class CachedRow:
    """Implements `prefixes.RowPrefix`."""

    def __init__(self, cache: PrefixCache, request_id: str) -> None:
        self.keys = cache.core.chain_keys()
        self._cache, self._request_id = cache, request_id
        self._match: Match | None = None  # what the last `seek` found
        self._total = 0  # tokens it was for
        self._awaited: set[EntryKey] = set()
        self._pinned: Match | None = None  # holds what was read until it is used
        self._loads_left = LOADS_PER_ROW
        self._reads_began = 0.0
        self._cold_skipped = ""

    def seek(self, tokens: Sequence[int]) -> Sought:
        cache = self._cache
        if self._awaited:
            assert self._match is not None
            return Sought(self._match.point, is_ready=False)
        if cache.layout is None:
            self._match = None
            return NOTHING
        match = cache.core.match(tokens, self.keys, hot_only=not self._loads_left)
        if not match.is_ready:
            self._cold_skipped = cache.rates.reading_loses(cache.clock())
            if self._cold_skipped:
                match = cache.core.match(tokens, self.keys, hot_only=True)
        self._match, self._total = match, len(tokens)
        if not match.is_ready:
            self._read(match, tokens)
        return Sought(match.point, match.is_ready)

    def _read(self, match: Match, tokens: Sequence[int]) -> None:
        cache = self._cache
        cache.core.pin(match)
        self._unpin()
        self._pinned = match
        self._loads_left -= 1
        self._awaited = {*match.loads, *match.pending}
        self._reads_began = cache.clock()
        cache.begin_reads(self, match, tokens)

    def has_read(self, key: EntryKey) -> bool:
        """A read has ended; whether it was the last this row waited for."""
        if key not in self._awaited:
            return False
        self._awaited.remove(key)
        if self._awaited:
            return False
        assert self._match is not None
        now = self._cache.clock()
        self._cache.rates.read.measured(
            tokens=max(self._match.ssd_tokens, 1), seconds=now - self._reads_began, now=now
        )
        return True

    def patience_s(self, now: float) -> float:
        """How much longer it waits for its reads."""
        return max(0.0, self._reads_began + PATIENCE_S - now)

    def reads_hang(self, now: float) -> bool:
        """If so it goes on with what is in RAM; what still comes is kept for others."""
        if self.patience_s(now) > 0:
            return False
        self._awaited.clear()
        self._unpin()
        self._loads_left = 0
        self._cold_skipped = f"reading took longer than {PATIENCE_S:g} s"
        return True

    def restore(self) -> Restored:
        match, cache = self._match, self._cache
        if match is None:
            return Restored(None, PrefixMatch())
        assert match.is_ready
        cache.core.touch(match, cache.clock())
        cache.hot.changes += 1
        caches = self._join(match) if match.point else None
        self._unpin()
        is_restored = caches is not None
        cache.reporter.count_computed(self._total - (match.point if is_restored else 0))
        found = PrefixMatch(
            ram=match.ram_tokens if is_restored else 0,
            ssd=match.ssd_tokens if is_restored else 0,
            donor=match.donor or "",
            diverged_at=match.diverged_at,
            why_not_more=match.why_not_more,
            cold_skipped=self._cold_skipped,
        )
        return Restored(caches, found)

    def _join(self, match: Match) -> Sequence[object] | None:
        cache = self._cache
        cache.core.pin(match)
        try:
            run = [cache.hot.block(block) for block in match.run]
            return cache.pages.join(match.point, run, room=self._total - match.point + ROOM_TOKENS)
        except Exception:
            cache.failed("join")
            return None
        finally:
            cache.hot.drop(cache.core.unpin(match), "budget")
            size = self.keys.block_tokens
            full = [block for block in reversed(match.run) if block.tokens == size]
            cache.cold.touch([key for block in full for key in block.keys])

    def store(
        self,
        read: Callable[[], RowCaches | None],
        *,
        at_point: bool,
        growing: bool,
        upto: int | None = None,
    ) -> None:
        cache = self._cache
        if cache.layout is None:
            return
        began = cache.clock()
        try:
            row = read()
            if row is not None and row.tokens:
                self._store(row, at_point, growing, len(row.tokens) if upto is None else upto)
        except Exception:
            cache.failed("store")
        cache.reporter.store_s += cache.clock() - began

    def _store(self, row: RowCaches, at_point: bool, growing: bool, upto: int) -> None:
        cache, computed = self._cache, len(row.tokens)
        missing = cache.core.missing(row.tokens, self.keys, computed=upto, at_point=at_point)
        cuts = (cut for cut in missing if growing or cut.kind != "kv")
        while group := list(islice(cuts, CUT_AT_ONCE)):
            pieces = cache.pages.cut(row.caches, group, computed)
            for cut, piece in zip(group, pieces, strict=True):
                if piece is None:
                    continue
                changes = cache.hot.put(cut, piece, request_id=self._request_id)
                if cut.kind == "kv" and changes.refused == "no room":
                    return  # nor would there be for what hangs on it
        if at_point and upto >= self._total - 1:
            left = cache.core.tails_left_behind(row.tokens, self.keys, prompt_tokens=self._total)
            cache.cold.remove(left)
        cache.cold.write_behind()

    def shared(self, other: RowPrefix) -> int:
        assert isinstance(other, CachedRow)
        return shared_ahead(self.keys, other.keys)

    def close(self) -> None:
        self._cache.stop_reads(self)
        self._awaited.clear()
        self._unpin()

    def _unpin(self) -> None:
        if self._pinned is not None:
            cache, pinned = self._cache, self._pinned
            self._pinned = None
            cache.hot.drop(cache.core.unpin(pinned), "budget")
