"""One daemon per home: whoever holds the lock on `run/omlxd.lock`.

The kernel drops the lock with its holder, so a file left by a crash means nothing. The file is
never removed: two daemons could then lock two files of the same name.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOCK_FILE = Path("run") / "omlxd.lock"


class AlreadyRunning(Exception):
    """Another daemon holds the home. `pid` is None while it has not written its number yet."""

    def __init__(self, home: Path, pid: int | None) -> None:
        who = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"{who} already runs omlxd for {home}; stop it first, or use another OMLX_HOME"
        )
        self.pid = pid


class LockHeld(Exception):
    """Another process holds the file. `pid` is None while it has not written its number."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


@dataclass(frozen=True, slots=True)
class Lock:
    """Held until `release`, or the end of this process."""

    path: Path
    fd: int

    def release(self) -> None:
        os.ftruncate(self.fd, 0)
        os.close(self.fd)


def acquire(home: Path) -> Lock:
    """Takes the lock of `home` without waiting; raises AlreadyRunning, OSError."""
    path = home / LOCK_FILE
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        return take_lock(path)
    except LockHeld as held:
        raise AlreadyRunning(home, held.pid) from held


def wait_for(home: Path) -> Lock:
    """Takes the lock of `home` when its holder ends; raises OSError."""
    return take_lock(home / LOCK_FILE, flags=fcntl.LOCK_EX)


def take_lock(path: Path, *, flags: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> Lock:
    """Locks a file, made if it is missing, by default without waiting; raises LockHeld, OSError."""
    # Descriptors that Python opens are not inherited, so no worker can keep the lock.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, flags)
    except BlockingIOError as error:
        pid = _written_pid(fd)
        os.close(fd)
        raise LockHeld(pid) from error
    except OSError:
        os.close(fd)
        raise
    os.ftruncate(fd, 0)
    with suppress(OSError):  # only others' messages use the number; a full disk keeps nobody out
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return Lock(path, fd)


def _written_pid(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None
