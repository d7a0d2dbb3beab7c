"""Counts what the cold tier has on disk and removes what is too much. Blocking.

Only files of our own form are seen at all. Files come and go while they are counted: workers write
and remove entries by themselves.
"""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omlxd.ipc.entry_format import is_entry, is_namespace, is_prefix, is_temporary
from omlxd.reconcile.cold_budget import cutoff

STALE_S = 3600.0  # a temporary file as old as this has lost its writer
_STAT_BLOCK = 512  # unit of st_blocks, on every system


@dataclass(slots=True)
class NamespaceCount:
    """What one model's folder holds. Times are Unix seconds; 0 = no entry."""

    entries: int = 0
    bytes: int = 0
    newest: float = 0.0
    oldest: float = 0.0


@dataclass(slots=True)
class Census:
    """All that was on disk at one time. `mtimes_ns` and `sizes` go together, one per entry."""

    namespaces: dict[str, NamespaceCount] = field(default_factory=dict)
    bytes: int = 0  # temporary files included
    stale: int = 0  # temporary files that were removed
    mtimes_ns: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))

    @property
    def entries(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class Evicted:
    blocks: int
    bytes: int


def take_census(folder: Path, *, is_stale: Callable[[str, float], bool]) -> Census:
    """Count everything, remove stale temporary files: `is_stale(namespace, mtime)` says which.

    Sizes are what the disk gives for them; a file with several names counts once.
    """
    census = Census()
    linked: set[tuple[int, int]] = set()
    for namespace, file, facts, is_whole in _files(folder):
        size = facts.st_blocks * _STAT_BLOCK
        if facts.st_nlink > 1:
            size = 0 if (facts.st_dev, facts.st_ino) in linked else size
            linked.add((facts.st_dev, facts.st_ino))
        if not is_whole and is_stale(namespace, facts.st_mtime):
            census.stale += remove(file.path)
            continue
        census.bytes += size
        if not is_whole:
            continue
        census.mtimes_ns.append(facts.st_mtime_ns)
        census.sizes.append(size)
        _count(census.namespaces.setdefault(namespace, NamespaceCount()), size, facts.st_mtime)
    return census


def _count(one: NamespaceCount, size: int, mtime: float) -> None:
    one.oldest = min(one.oldest, mtime) if one.entries else mtime
    one.newest = max(one.newest, mtime)
    one.entries += 1
    one.bytes += size


def evict(folder: Path, census: Census, excess_bytes: int) -> Evicted:
    """Remove the oldest entries; one that was used since the census stays."""
    if not census.entries:
        return Evicted(0, 0)
    last = cutoff(census.mtimes_ns, census.sizes, excess_bytes)
    return _evict(folder, lambda facts, freed: _goes(facts.st_mtime_ns, last, freed < excess_bytes))


def _goes(mtime_ns: int, last: int, is_more_needed: bool) -> bool:
    return mtime_ns < last or (mtime_ns == last and is_more_needed)


def clear(folder: Path, *, only: Collection[str] | None) -> Evicted:
    """Remove every entry, or those of some namespaces."""
    return _evict(folder, lambda facts, freed: True, only=only)


def _evict(
    folder: Path,
    goes: Callable[[os.stat_result, int], bool],
    *,
    only: Collection[str] | None = None,
) -> Evicted:
    blocks = freed = 0
    for namespace, file, facts, is_whole in _files(folder):
        if not is_whole or (only is not None and namespace not in only):
            continue
        if goes(facts, freed) and remove(file.path):
            blocks += 1
            if facts.st_nlink == 1:  # else the bytes stay, under another name
                freed += facts.st_blocks * _STAT_BLOCK
    return Evicted(blocks, freed)


def entry_files(folder: Path, *, only: Collection[str] | None) -> Iterator[str]:
    """Paths of all entries, or of those of some namespaces."""
    for namespace, file, _, is_whole in _files(folder):
        if is_whole and (only is None or namespace in only):
            yield file.path


def remove_empty(folder: Path, *, keeps: Collection[str]) -> int:
    """Remove namespaces without a file, but not `keeps`: a worker may be about to write there."""
    removed = 0
    for namespace in _folders(folder, is_namespace):
        if namespace.name in keeps:
            continue
        for prefix in _folders(namespace.path, is_prefix):
            _remove_folder(prefix.path)
        removed += _remove_folder(namespace.path)
    return removed


# ------------------------------------------------------------------ the disk


def _files(folder: Path) -> Iterator[tuple[str, os.DirEntry[str], os.stat_result, bool]]:
    """Every entry (True) and temporary file (False), with its namespace."""
    for namespace in _folders(folder, is_namespace):
        for prefix in _folders(namespace.path, is_prefix):
            for file in _listed(prefix.path):
                is_whole = is_entry(prefix.name, file.name)
                if not is_whole and not is_temporary(prefix.name, file.name):
                    continue
                try:
                    facts = file.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # removed since it was listed
                if stat.S_ISREG(facts.st_mode):
                    yield namespace.name, file, facts, is_whole


def _folders(
    path: os.PathLike[str] | str, is_ours: Callable[[str], bool]
) -> list[os.DirEntry[str]]:
    return [e for e in _listed(path) if is_ours(e.name) and e.is_dir(follow_symlinks=False)]


def _listed(path: os.PathLike[str] | str) -> list[os.DirEntry[str]]:
    """Whole before anything is removed from it."""
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def remove(path: str) -> bool:
    """False if it was gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _remove_folder(path: str) -> bool:
    """If nothing is in it."""
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
        return False
    return True
