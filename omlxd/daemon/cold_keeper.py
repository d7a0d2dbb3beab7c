"""Looks after the folder of the cold tier: holds it, counts it, keeps it within its bounds.

Blocking, and for one call at a time. Counting reads the whole folder, so it is done now and then;
in between, what the workers say they wrote is added.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from omlxd.daemon.cold_folder import HeldFolder, NotUsable, take
from omlxd.daemon.janitor import STALE_S, Evicted, evict, remove_empty, take_census
from omlxd.reconcile.cold_budget import EvictReason, Excess, excess
from omlxd.units import format_size

CENSUS_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdSettings:
    """`[cache]` as far as the folder goes."""

    path: Path
    budget_bytes: int  # 0 = the tier is off
    min_free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look goes by beside the folder."""

    now: float
    settings: ColdSettings
    written: int = 0  # bytes, by all workers since the daemon started
    in_use: frozenset[str] = frozenset()  # namespaces of running workers
    probe: bool = True  # see whether the folder is still what it was
    thorough: bool = False  # count now, and take temporary files of unused namespaces for dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """What was found by counting, and removed then."""

    namespaces: frozenset[str]  # that hold entries
    entries: int
    evicted: Evicted
    reason: EvictReason
    stale: int  # temporary files
    emptied: int  # namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdView:
    """What a look found."""

    dir: str = ""  # the folder, if workers may use it
    reason: str = "Starting"  # "Ready", "TurnedOff", or why not all is well
    message: str = ""
    held_bytes: int = 0  # as counted
    written: int = 0  # `Look.written` when it was counted
    free_bytes: int = 0  # of its disk
    tidied: Tidied | None = None  # if this look counted


class ColdKeeper:
    """Owns the lock on the folder."""

    def __init__(self) -> None:
        self._folder: HeldFolder | None = None
        self._devices: dict[Path, int] = {}  # where a folder was when it was last ours
        self._held_bytes = 0
        self._written = 0
        self._counted_at: float | None = None

    def look(self, look: Look) -> ColdView:
        """Hold the folder that is wanted, and keep it within its bounds."""
        wanted = look.settings
        if self._folder is not None and self._folder.path != wanted.path:
            self.release()
        if not wanted.budget_bytes:
            self.release()
            return ColdView(reason="TurnedOff", message='cache.cold is "0"')
        try:
            folder = self._hold(wanted.path, probe=look.probe)
            free, tidied = folder.free_bytes(), None
            if look.thorough or self._is_due(look, free):
                tidied = self._tidy(folder, look, free)
            return self._view(folder, look, tidied)
        except NotUsable as problem:
            self.release()
            return ColdView(reason=problem.reason, message=problem.message)
        except OSError as error:  # the disk failed meanwhile; the next look says what it is
            self.release()
            message = f"{wanted.path} cannot be used: {error.strerror or error!r}"
            return ColdView(reason="NotUsable", message=message)

    def release(self) -> None:
        """Let others have the folder; what is in it stays."""
        if self._folder is not None:
            self._folder.release()
            self._folder = self._counted_at = None

    def _hold(self, path: Path, *, probe: bool) -> HeldFolder:
        if self._folder is None:
            self._folder = take(path, device=self._devices.get(path))
            self._devices[path] = self._folder.device
        elif probe:
            self._folder.check()
        return self._folder

    def _is_due(self, look: Look, free: int) -> bool:
        if self._counted_at is None or look.now - self._counted_at >= CENSUS_S:
            return True
        held = self._held_bytes + look.written - self._written
        return _too_much(look.settings, held, free) is not None

    def _tidy(self, folder: HeldFolder, look: Look, free: int) -> Tidied:
        old = time.time() - STALE_S

        def is_stale(namespace: str, mtime: float) -> bool:
            return mtime < old or (look.thorough and namespace not in look.in_use)

        census = take_census(folder.path, is_stale=is_stale)
        evicted = Evicted(0, 0)
        too_much = _too_much(look.settings, census.bytes, free)
        if too_much is not None:
            evicted = evict(folder.path, census, too_much.bytes)
        self._held_bytes = census.bytes - evicted.bytes
        self._written, self._counted_at = look.written, look.now
        return Tidied(
            namespaces=frozenset(census.namespaces),
            entries=census.entries - evicted.blocks,
            evicted=evicted,
            reason=too_much.reason if too_much else "budget",
            stale=census.stale,
            emptied=remove_empty(folder.path, keeps=look.in_use),
        )

    def _view(self, folder: HeldFolder, look: Look, tidied: Tidied | None) -> ColdView:
        free, least = folder.free_bytes(), look.settings.min_free_bytes
        is_full = free < least
        message = (
            f"its disk has {format_size(free)} free and cache.cold_min_free is "
            f"{format_size(least)}: blocks are read, none is written"
        )
        return ColdView(
            dir=str(folder.path),
            reason="DiskFull" if is_full else "Ready",
            message=message if is_full else str(folder.path),
            held_bytes=self._held_bytes,
            written=self._written,
            free_bytes=free,
            tidied=tidied,
        )


def _too_much(settings: ColdSettings, held: int, free: int) -> Excess | None:
    return excess(
        held=held, budget=settings.budget_bytes, free=free, min_free=settings.min_free_bytes
    )
