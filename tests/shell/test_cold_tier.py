"""The cold tier on the event loop: when it looks, what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from omlxd.daemon.cache_book import CacheBook
from omlxd.daemon.cold_folder import take
from omlxd.daemon.cold_keeper import ColdSettings
from omlxd.daemon.cold_tier import ColdTier
from omlxd.daemon.journal import Journal
from omlxd.ipc.messages import CacheReport
from omlxd.observe.events import EventRing
from tests.support.cold import KIB, disk_bytes, namespace, put


class Tier:
    """A running tier and what it told."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "cache"
        self.ring = EventRing(folder / "events.jsonl")
        journal = Journal(self.ring)
        self.book = CacheBook(journal)
        self.looks = 0
        self._looked = asyncio.Event()
        self.tier = ColdTier(self.book, journal, on_change=self._on_change, probe_s=0.02)
        self.book.on_written = self.tier.wrote
        self.running = asyncio.create_task(self.tier.run())

    def _on_change(self) -> None:
        self.looks += 1
        self._looked.set()

    def want(self, *, budget: int = 100 * KIB, min_free: int = 0) -> None:
        self.tier.want(ColdSettings(path=self.path, budget_bytes=budget, min_free_bytes=min_free))

    async def until(self, met: Callable[[], bool]) -> None:
        while not met():
            self._looked.clear()
            await self._looked.wait()

    async def until_reason(self, reason: str) -> None:
        await self.until(lambda: self.tier.view.reason == reason)

    def events(self) -> list[str]:
        return [event.reason for event in self.ring.since()]


@pytest.fixture
async def tier(tmp_path: Path) -> AsyncIterator[Tier]:
    tier = Tier(tmp_path)
    yield tier
    tier.running.cancel()
    await asyncio.gather(tier.running, return_exceptions=True)


async def test_it_waits_for_settings(tier: Tier) -> None:
    """Before the files are read there is no folder, and nothing is made."""
    assert (tier.tier.view.reason, tier.tier.held_bytes) == ("Starting", 0)
    tier.want()
    await tier.until_reason("Ready")
    assert tier.tier.view.dir == str(tier.path)
    assert tier.events() == []


async def test_trouble_is_told_once_and_so_is_its_end(tier: Tier) -> None:
    """However often it looks, one warning; and it comes back by itself."""
    tier.path.mkdir()
    (tier.path / "thesis.txt").touch()
    tier.want()
    await tier.until_reason("NotOurs")
    looks = tier.looks
    await tier.until(lambda: tier.looks > looks + 2)
    assert tier.events() == ["ColdTierLost"]
    (tier.path / "thesis.txt").unlink()
    await tier.until_reason("Ready")
    assert tier.events() == ["ColdTierLost", "ColdTierBack"]


async def test_a_folder_in_use_is_taken_when_it_is_free(tier: Tier) -> None:
    """The second daemon gets none, and waits for it."""
    holder = take(tier.path, device=None)
    tier.want()
    await tier.until_reason("InUse")
    holder.release()
    await tier.until_reason("Ready")


async def test_turning_it_off_is_no_trouble(tier: Tier) -> None:
    """Off and on again are orders, not events."""
    tier.want()
    await tier.until_reason("Ready")
    tier.want(budget=0)
    await tier.until_reason("TurnedOff")
    assert (tier.tier.view.dir, tier.tier.held_bytes) == ("", 0)
    tier.want()
    await tier.until_reason("Ready")
    assert tier.events() == []


async def test_what_workers_write_counts_until_it_is_counted(tier: Tier) -> None:
    """`held_bytes` rises with every report, and past the budget the oldest go."""
    tier.want()
    await tier.until_reason("Ready")
    for number in range(26):
        put(tier.path, number, age_s=number)
    tier.book.heard("m", CacheReport(namespace=namespace(1), written_bytes=60 * KIB))
    assert tier.tier.held_bytes == 60 * KIB
    tier.book.heard("m", CacheReport(namespace=namespace(1), written_bytes=101 * KIB))
    await tier.until(lambda: tier.tier.held_bytes == 92 * KIB)
    assert disk_bytes(tier.path) == 92 * KIB


async def test_a_thorough_look_counts_now(tier: Tier) -> None:
    """What others put there or took away is seen at once."""
    tier.want()
    await tier.until_reason("Ready")
    put(tier.path, 1)
    view = await tier.tier.look(thorough=True)
    assert view.tidied is not None
    assert (view.tidied.entries, tier.tier.held_bytes) == (1, 4 * KIB)
