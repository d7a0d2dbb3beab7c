"""The folder of the cold tier: made, recognised, locked and looked after. Blocking.

A folder is ours if it carries our CACHEDIR.TAG. It is made where there is none, and an empty one is
taken; anything else is refused, since files in it will be removed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from omlxd.daemon.files import write_private
from omlxd.daemon.lock import Lock, LockHeld, take_lock

TAG = "CACHEDIR.TAG"
NO_INDEX = ".metadata_never_index"  # keeps Spotlight out
LOCK = ".omlxd.lock"
PROBE = ".omlxd.probe"
SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55"
OURS = b"# This folder was made by omlxd"
TAG_TEXT = SIGNATURE + b"\n" + OURS + b": blocks of its prefix cache. They can be deleted.\n"
HARMLESS = frozenset({".DS_Store", "lost+found"})  # a folder with nothing else counts as empty

_BY_ERRNO = {
    errno.ENOENT: "Missing",
    errno.ENOTDIR: "NotAFolder",
    errno.EEXIST: "NotAFolder",
    errno.EROFS: "ReadOnly",
    errno.EACCES: "NotPermitted",
    errno.EPERM: "NotPermitted",
    errno.ELOOP: "NotAFolder",
}
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class NotUsable(Exception):
    """Why a folder cannot hold the cold tier: one CamelCase word and a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class HeldFolder:
    """A folder that is ours alone until `release`."""

    path: Path
    lock: Lock
    device: int

    def check(self) -> None:
        """It is still there, ours and writable; raises NotUsable. A full disk is no reason."""
        try:
            here, held = os.stat(self.path / LOCK), os.fstat(self.lock.fd)
            if (here.st_dev, here.st_ino) != (held.st_dev, held.st_ino):
                raise NotUsable("Missing", f"{self.path} is not the folder that it was")
            _refuse_other(self.path, os.listdir(self.path))
            _try_writing(self.path / PROBE)
        except FileNotFoundError:
            raise NotUsable("Missing", f"{self.path} is gone") from None
        except OSError as error:
            raise _not_usable(self.path, error) from error

    def free_bytes(self) -> int:
        """What the file system still gives to this user."""
        facts = os.statvfs(self.path)
        return facts.f_bavail * facts.f_frsize

    def release(self) -> None:
        self.lock.release()


def take(path: Path, *, device: int | None) -> HeldFolder:
    """Make the folder, or recognise it, and lock it; raises NotUsable.

    `device`: of the file system it was on when it was last ours. A new folder is made on that one
    only: where a disk was unmounted, its blocks must not begin to fill another.
    """
    try:
        _make(path, device)
        (path / NO_INDEX).touch(mode=0o600)
        lock = take_lock(path / LOCK)
        return HeldFolder(path, lock, os.fstat(lock.fd).st_dev)
    except LockHeld as held:
        who = f"process {held.pid}" if held.pid is not None else "another process"
        message = f"{path} is in use by {who}; give each daemon a cache.cold_dir of its own"
        raise NotUsable("InUse", message) from None
    except OSError as error:
        raise _not_usable(path, error) from error


def _make(path: Path, device: int | None) -> None:
    """What is there afterwards is a folder with our tag."""
    if not path.is_dir():
        _refuse_other_device(path, path.parent, device)
        path.mkdir(mode=0o700)
    facts = path.stat()
    if facts.st_uid not in (os.geteuid(), 0) or not stat.S_ISDIR(facts.st_mode):
        raise NotUsable("NotOurs", f"{path} belongs to another user (uid {facts.st_uid})")
    names = os.listdir(path)
    if set(names) <= HARMLESS:
        _refuse_other_device(path, path, device)
        write_private(path / TAG, TAG_TEXT)
    else:
        _refuse_other(path, names)


def _refuse_other(path: Path, names: Collection[str]) -> None:
    tag = b""
    if TAG in names:
        with suppress(FileNotFoundError):
            tag = (path / TAG).read_bytes()[:1024]
    if not tag.startswith(SIGNATURE) or OURS not in tag:
        message = (
            f"{path} holds files that are not omlxd's, so it is left alone; "
            "name an empty or a new folder in cache.cold_dir"
        )
        raise NotUsable("NotOurs", message)


def _refuse_other_device(path: Path, place: Path, device: int | None) -> None:
    if device is not None and place.stat().st_dev != device:
        message = f"the disk of {path} is not mounted; it is used again when it is back"
        raise NotUsable("Missing", message)


def _try_writing(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        path.unlink()
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise


def _not_usable(path: Path, error: OSError) -> NotUsable:
    if error.errno in NO_SPACE:
        return NotUsable("DiskFull", f"{path}: {error.strerror}")
    reason = _BY_ERRNO.get(error.errno or 0, "NotUsable")
    what = error.strerror or repr(error)
    return NotUsable(reason, f"{path} cannot be used: {what}")
