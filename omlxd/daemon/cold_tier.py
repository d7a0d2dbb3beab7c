"""The cold tier on the event loop: when to look after its folder, and what is known of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from omlxd.daemon.cache_book import CacheBook
from omlxd.daemon.cold_keeper import ColdKeeper, ColdSettings, ColdView, Look
from omlxd.daemon.journal import Journal

PROBE_S = 30.0  # between two looks at the folder
PAUSE_S = 1.0  # between two looks for the sake of what is written


class ColdTier:
    """Owns the keeper of the folder; `view` is what it last found."""

    def __init__(
        self,
        book: CacheBook,
        journal: Journal,
        *,
        on_change: Callable[[], None],
        probe_s: float = PROBE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.view = ColdView()
        self.settings: ColdSettings | None = None
        self._book = book
        self._journal = journal
        self._on_change = on_change
        self._probe_s = probe_s
        self._clock = clock
        self._keeper = ColdKeeper()
        self._turn = asyncio.Lock()  # one look at a time
        self._probed_at = -probe_s
        self._wake = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None

    @property
    def held_bytes(self) -> int:
        """On disk, as far as is known between two counts."""
        if not self.view.dir:
            return 0
        return self.view.held_bytes + self._book.written_bytes - self.view.written

    def want(self, settings: ColdSettings) -> None:
        """What the files in force ask for."""
        if settings != self.settings:
            self.settings = settings
            self._probed_at = -self._probe_s
            self._wake.set()

    def wrote(self) -> None:
        """A worker has written something: look soon, however much it writes."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(PAUSE_S, self._look_now)

    def _look_now(self) -> None:
        self._soon = None
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            if self.settings is not None:
                await self.look()
            try:
                async with asyncio.timeout(self._probe_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def look(self, *, thorough: bool = False) -> ColdView:
        """Look after the folder now; `thorough`: count it in any case."""
        async with self._turn:
            assert self.settings is not None
            now = self._clock()
            is_due = now - self._probed_at >= self._probe_s
            look = Look(
                now=now,
                settings=self.settings,
                written=self._book.written_bytes,
                in_use=frozenset(self._book.namespaces),
                probe=is_due or thorough or not self.view.dir,
                thorough=thorough,
            )
            if look.probe:
                self._probed_at = now
            before, self.view = self.view, await asyncio.to_thread(self._keeper.look, look)
        self._tell(before, self.view)
        self._on_change()
        return self.view

    def _tell(self, before: ColdView, now: ColdView) -> None:
        """What changed, once."""
        if now.tidied is not None and now.tidied.evicted.blocks:
            evicted = now.tidied.evicted
            self._journal.cache_evicted(
                tier="cold", blocks=evicted.blocks, bytes=evicted.bytes, reason=now.tidied.reason
            )
        if now.reason == before.reason or now.reason == "TurnedOff":
            return
        if now.reason != "Ready":
            self._journal.cold_tier_lost(now.reason, now.message)
        elif before.reason not in ("Starting", "TurnedOff"):
            self._journal.cold_tier_back(now.message)
