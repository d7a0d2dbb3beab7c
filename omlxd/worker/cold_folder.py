"""The folder of one namespace on disk: `<hh>/<hash>.safetensors`, one file per entry.

Files of any other form are never touched, links are not followed. The folder's parent is the
daemon's: where it is missing (a disk that is not mounted) nothing is made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from omlxd.ipc.entry_format import (
    ENTRY_SUFFIX,
    TEMPORARY_SUFFIX,
    BadEntry,
    is_entry,
    is_prefix,
    is_temporary,
)
from omlxd.kv.types import EntryKey
from omlxd.worker.entry_file import CREATE, read_entry, write_entry
from omlxd.worker.piece import Piece

STALE_TEMPORARY_S = 3600.0  # no write takes that long: its process was killed
_HASH_DIGITS = 64

WriteReason = Literal["missing", "read only", "disk full", "below min free", "io"]
_REASONS: dict[int | None, WriteReason] = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EEXIST: "missing",  # something else has its name
    errno.EROFS: "read only",
    errno.EACCES: "read only",
    errno.EPERM: "read only",
    errno.ENOSPC: "disk full",
    errno.EDQUOT: "disk full",
}


class BelowMinFree(OSError):
    """The file would leave less room on the disk than is to stay free."""


def write_reason(error: OSError) -> WriteReason:
    if isinstance(error, BelowMinFree):
        return "below min free"
    return _REASONS.get(error.errno, "io")


class ColdFolder:
    """Safe to use from several threads; each call waits for the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list(self) -> Iterator[tuple[EntryKey, int]]:
        """All entries and the bytes of their files; none where there is no folder yet.

        Removes temporary files that a killed process left. Raises OSError.
        """
        try:
            shards = [entry.name for entry in os.scandir(self._folder)]
        except FileNotFoundError:
            return
        for name in filter(is_prefix, shards):
            with contextlib.suppress(FileNotFoundError):  # emptied and removed meanwhile
                yield from self._list_shard(name)

    def write(self, key: EntryKey, piece: Piece, *, min_free_bytes: int) -> int:
        """Give the bytes of the file; raises OSError."""
        path = self._ready(key)
        self._leave_free(piece.nbytes, min_free_bytes)
        try:
            return write_entry(path, key, piece)
        except FileNotFoundError:  # the janitor has just removed the folder, being empty
            return write_entry(self._ready(key), key, piece)

    def read(self, key: EntryKey) -> Piece:
        """Raises BadEntry; a file that was found bad is gone then."""
        path = self._path(key)
        try:
            return read_entry(path, key)
        except BadEntry as error:
            if error.reason not in ("absent", "io"):
                with contextlib.suppress(OSError):  # read only: it stays, and stays a miss
                    path.unlink()
            raise

    def remove(self, key: EntryKey) -> None:
        """The entry's file; raises OSError, but not if there is none."""
        self._path(key).unlink(missing_ok=True)

    def touch(self, key: EntryKey, mtime_ns: int) -> None:
        """Set the time by which files are evicted; raises OSError."""
        os.utime(self._path(key), ns=(mtime_ns, mtime_ns), follow_symlinks=False)

    def check(self, *, min_free_bytes: int) -> None:
        """Raise OSError if an entry could not be written now."""
        path = self._ready(EntryKey(bytes(32)))
        self._leave_free(0, min_free_bytes)
        probe = path.with_name(f"{path.stem}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}")
        try:
            with os.fdopen(os.open(probe, CREATE, 0o600), "wb") as file:
                file.write(b"\0")
        finally:
            probe.unlink(missing_ok=True)

    def _ready(self, key: EntryKey) -> Path:
        """The entry's place, with its folders made."""
        path = self._path(key)
        for folder in (self._folder, path.parent):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        return path

    def _path(self, key: EntryKey) -> Path:
        name = key.hex()
        return self._folder / name[:2] / f"{name}{ENTRY_SUFFIX}"

    def _list_shard(self, name: str) -> Iterator[tuple[EntryKey, int]]:
        stale = time.time() - STALE_TEMPORARY_S
        with os.scandir(self._folder / name) as files:
            for file in files:
                entry = is_entry(name, file.name)
                if not entry and not is_temporary(name, file.name):
                    continue
                try:
                    facts = file.stat(follow_symlinks=False)
                except FileNotFoundError:  # evicted meanwhile
                    continue
                if entry and stat.S_ISREG(facts.st_mode):
                    yield EntryKey(bytes.fromhex(file.name[:_HASH_DIGITS])), facts.st_size
                elif not entry and facts.st_mtime < stale:
                    (self._folder / name / file.name).unlink(missing_ok=True)

    def _leave_free(self, nbytes: int, min_free_bytes: int) -> None:
        if not min_free_bytes:
            return
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if free - nbytes < min_free_bytes:
            raise BelowMinFree(
                f"{self._folder}: {free} bytes free, cold_min_free is {min_free_bytes}"
            )
