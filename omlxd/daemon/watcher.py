"""Notices that files changed and says "look again"; what changed is for the reader to find out.

Events of the file system are hints only: after each, and every `poll_s` seconds for what events
miss (a network folder, a folder that was replaced), the state of all files is compared with the
last one, and the callback runs on a difference. Rules of the watch:

- Folders are watched, never files: most editors replace the file.
- Every folder that holds a link on the way to omlx.toml is watched, and the way is walked again
  after each hint, since any link of it may have been swapped.
- A folder that was removed and made again has a new inode and needs a new watch.
- Our own reads give `opened` and `closed_no_write`; they are no hints.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

from omlxd.daemon.files import DROP_INS

POLL_S: Final = 1.5
SETTLE_S: Final = 0.06  # quiet time after a save that is complete
HALF_WRITTEN_S: Final = 0.25  # quiet time after a write that was not closed yet
LONGEST_S: Final = 0.5  # a file that is written to all the time is read nevertheless
MODELS_POLL_S: Final = 4.0
_MAX_LINKS: Final = 40  # as the kernel's own limit
_SETTLE: Final = {
    "attrib": SETTLE_S,
    "closed": SETTLE_S,
    "moved": SETTLE_S,
    "created": HALF_WRITTEN_S,
    "modified": HALF_WRITTEN_S,
    "deleted": HALF_WRITTEN_S,  # most often the first half of a replacement
}

Signature = tuple[object, ...]


class FileWatcher(FileSystemEventHandler):
    """Calls `on_change` on the event loop after omlx.toml or a drop-in may have changed.

    `others` names more files whose changes count, and is asked at every look; they are only polled.
    """

    def __init__(
        self,
        home: Path,
        config: Path,
        on_change: Callable[[], None],
        *,
        others: Callable[[], Iterable[Path]] = tuple,
        poll_s: float = POLL_S,
    ) -> None:
        self.armed = asyncio.Event()  # set when changes are noticed
        self.unwatched: dict[Path, str] = {}  # folders that are only polled, and why
        self._home, self._config = home.absolute(), config.absolute()
        self._on_change, self._others, self._poll_s = on_change, others, poll_s
        self._observer = Observer()
        self._watches: dict[Path, tuple[Signature, ObservedWatch]] = {}
        self._hinted = asyncio.Event()
        self._due = 0.0  # loop time at which the files count as settled

    async def run(self) -> None:
        """Until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._observer.start()
        try:
            self._arm()
            seen = self._snapshot()
            self.armed.set()
            while True:
                await self._hint_or_poll(seen)
                self._arm()  # before looking: what changes later is an event of the new watches
                now = self._snapshot()
                if now != seen:
                    seen = now
                    self._on_change()
        finally:
            self._observer.stop()
            await asyncio.to_thread(self._observer.join)

    def on_any_event(self, event: FileSystemEvent) -> None:
        """On a thread of watchdog."""
        settle_s = _SETTLE.get(event.event_type)
        # "modified" of a folder follows the event of the file in it, which says more.
        is_echo = event.is_directory and event.event_type == "modified"
        if settle_s is not None and not is_echo:
            self._loop.call_soon_threadsafe(self._hint, settle_s)

    def _hint(self, settle_s: float) -> None:
        self._due = self._loop.time() + settle_s
        self._hinted.set()

    async def _hint_or_poll(self, seen: Signature) -> None:
        """Returns when there is reason to look and the files have come to rest."""
        while not self._hinted.is_set():
            try:
                await asyncio.wait_for(self._hinted.wait(), self._poll_s)
            except TimeoutError:
                if self._snapshot() != seen:
                    self._hint(SETTLE_S)
        latest = self._loop.time() + LONGEST_S
        with contextlib.suppress(TimeoutError):
            while True:
                self._hinted.clear()
                async with asyncio.timeout_at(min(self._due, latest)):
                    await self._hinted.wait()

    def _folders(self) -> set[Path]:
        return {self._home, self._home / DROP_INS, *(p.parent for p in way_to(self._config))}

    def _snapshot(self) -> Signature:
        """Equal as long as reading the files can give nothing new."""
        folders = sorted((folder, _identity(folder)) for folder in self._folders())
        files = [*way_to(self._config), *sorted((self._home / DROP_INS).glob("*.toml"))]
        others = [(file, _identity(file.parent), _content(file)) for file in self._others()]
        return (folders, [(file, _content(file)) for file in files], others)

    def _arm(self) -> None:
        """Watch what must be watched now, and nothing else."""
        wanted = {folder: _identity(folder) for folder in self._folders()}
        for folder, (identity, watch) in list(self._watches.items()):
            if wanted.get(folder) != identity:
                self._observer.unschedule(watch)
                del self._watches[folder]
        self.unwatched = {}
        for folder, identity in wanted.items():
            # Links such as /tmp on macOS: on the root folder, everything would be an event.
            if identity and folder not in self._watches and folder != Path(folder.anchor):
                self._watch(folder, identity)

    def _watch(self, folder: Path, identity: Signature) -> None:
        try:
            watch = self._observer.schedule(self, str(folder), recursive=False)
        except OSError as error:  # gone again, or no watches left: polling goes on
            self.unwatched[folder] = error.strerror or str(error)
        else:
            self._watches[folder] = (identity, watch)


class ModelFolderWatcher:
    """Calls `on_change` on the event loop when model folders came, went or were written to.

    Coarse: it compares modification times of folders, two levels deep, every `poll_s` seconds.
    """

    def __init__(
        self,
        folders: Callable[[], Iterable[Path]],
        on_change: Callable[[], None],
        *,
        poll_s: float = MODELS_POLL_S,
    ) -> None:
        self.armed = asyncio.Event()
        self._folders, self._on_change, self._poll_s = folders, on_change, poll_s

    async def run(self) -> None:
        """Until cancelled. `folders` is asked at every poll; other folders are no change."""
        watched, seen = await self._look()
        self.armed.set()
        while True:
            await asyncio.sleep(self._poll_s)
            folders, now = await self._look()
            if now != seen and folders == watched:
                self._on_change()
            watched, seen = folders, now

    async def _look(self) -> tuple[list[Path], Signature]:
        folders = list(self._folders())
        return folders, await asyncio.to_thread(_folder_times, folders)


def way_to(path: Path) -> list[Path]:
    """Every symbolic link that is passed on the way to `path`, and its real place at the end."""
    passed: list[Path] = []
    done, ahead = Path(path.anchor), list(reversed(path.parts[1:]))
    while ahead:
        here = done / ahead.pop()
        target = _link_target(here) if len(passed) < _MAX_LINKS else None
        if target is None:
            done = here.parent.parent if here.name == ".." else here
            continue
        passed.append(here)
        if target.is_absolute():
            done = Path(target.anchor)
        ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return [*passed, done]


def _link_target(path: Path) -> Path | None:
    try:
        return Path(os.readlink(path))
    except OSError:  # not a link, or not there (any more)
        return None


def _identity(folder: Path) -> Signature:
    """Empty = not there. Mode and owner count: they decide whether files are taken."""
    try:
        facts = folder.stat()
    except OSError:
        return ()
    return (facts.st_dev, facts.st_ino, facts.st_mode, facts.st_uid)


def _content(file: Path) -> Signature:
    """Of the link and of what it points to. The change time tells of what keeps size and mtime."""
    found: list[object] = []
    for follow in (False, True):
        try:
            facts = file.stat(follow_symlinks=follow)
        except OSError:
            return ()
        found += (facts.st_dev, facts.st_ino, facts.st_mode, facts.st_uid, facts.st_size)
        found += (facts.st_mtime_ns, facts.st_ctime_ns)
    return tuple(found)


def _folder_times(folders: list[Path]) -> Signature:
    return tuple(entry for folder in folders for entry in _times_below(folder, 2))


def _times_below(folder: Path, levels: int) -> Iterator[tuple[str, int]]:
    try:
        yield str(folder), folder.stat().st_mtime_ns
        inner = sorted(child for child in folder.iterdir() if child.is_dir()) if levels else []
    except OSError:  # not there (any more), or not ours to read: as if it were empty
        return
    for child in inner:
        yield from _times_below(child, levels - 1)
