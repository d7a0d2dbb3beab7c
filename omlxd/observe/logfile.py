"""The file that the log goes to: appended, rotated by size and count, never in the caller's way.

The file is owned here and rotated by rename, so nothing outside has to copy, truncate or signal.
Whatever the disk does, `write` returns: lines that cannot be written are counted, that is said
once on stderr, and the next line that is written tells how many are missing before it.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path


class LogFile:
    """Nothing is buffered: a line is in the kernel when `write` returns. Safe for threads."""

    def __init__(self, path: Path, *, max_size: int, keep: int) -> None:
        """`max_size` in bytes; `keep` rotated files stay beside the current one."""
        self.path = path
        self.max_size = max_size
        self.keep = keep
        self.dropped = 0  # lines lost since the file last took one
        self._fd: int | None = None
        # Reentrant: a destructor that logs may run inside `write`, in the same thread.
        self._lock = threading.RLock()

    def write(self, line: bytes) -> int:
        """Appends `line`, which ends in a newline. Never raises OSError.

        Returns how many lines were lost right before this one, if this one was written.
        """
        with self._lock:
            try:
                self._append(self._ready_for(len(line)), line)
            except OSError as error:
                self._count_loss(error)
                return 0
            lost, self.dropped = self.dropped, 0
            return lost

    def reopen(self) -> None:
        """The next line goes to whatever is at the path then."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    close = reopen

    def _ready_for(self, size: int) -> int:
        fd = self._open() if self._fd is None else self._fd
        facts = os.fstat(fd)
        if facts.st_nlink == 0:  # removed under us: lines would go nowhere
            self.reopen()
            return self._open()
        if facts.st_size and facts.st_size + size > self.max_size:
            self._rotate()
            return self._open()
        return fd

    def _open(self) -> int:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = self._fd = os.open(self.path, flags, 0o600)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":  # half a line, from a full disk
            self._append(fd, b"\n")
        return fd

    def _append(self, fd: int, data: bytes) -> None:
        written = os.write(fd, data)
        if written < len(data):  # a full disk takes the first part without an error
            raise OSError(f"only {written} of {len(data)} bytes were written")

    def _rotate(self) -> None:
        self.reopen()
        number = max(self.keep, 1)
        while (beyond := self._numbered(number)).exists():  # also what a larger `keep` left
            beyond.unlink()
            number += 1
        for number in range(self.keep - 1, 0, -1):
            if (older := self._numbered(number)).exists():
                older.rename(self._numbered(number + 1))
        if self.keep:
            self.path.rename(self._numbered(1))
        else:
            self.path.unlink()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _count_loss(self, error: OSError) -> None:
        self.reopen()
        self.dropped += 1
        if self.dropped == 1:
            complain(f"cannot log to {self.path}: {error}; lines are dropped until it works again")


def complain(message: str) -> None:
    """One line on stderr, for what the log itself cannot carry."""
    try:
        sys.stderr.write(f"omlxd: {message}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # Neither log nor stderr takes anything: nobody is left to be told.
        return
