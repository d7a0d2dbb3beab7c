"""Reading a picture from a file of this machine: only below the folders of server.media_roots."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

_CLOSED = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FILE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))


class FileRefused(Exception):
    """Why it is not read, as a part of a sentence."""


def read_below(roots: Iterable[Path], path: Path, *, limit: int) -> bytes:
    """The bytes of a regular file. Raises FileRefused.

    Links are followed first, and where they end counts. Then every folder is opened from its
    parent and none may be a link, so what is changed meanwhile leads nowhere else. About what lies
    outside the roots nothing is told, not even whether it exists.
    """
    real = _real(path)
    for root in map(_real, roots):
        if real != root and real.is_relative_to(root):
            break
    else:
        raise FileRefused("is not below a folder of server.media_roots")
    try:
        return _read(root, real.relative_to(root).parts, limit)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise FileRefused("is not there") from None
        raise FileRefused(f"cannot be read: {error.strerror}") from error


def _real(path: Path) -> Path:
    """Without links, as far as it exists; where links go in a circle it stays as it is."""
    return Path(os.path.realpath(path))


def _read(root: Path, parts: tuple[str, ...], limit: int) -> bytes:
    folder = os.open(root, _CLOSED | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, _CLOSED | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        # A pipe without a writer would wait for ever.
        opened = os.open(parts[-1], _CLOSED | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise FileRefused("is not a regular file")
        with open(opened, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(opened)
    if len(data) > limit:
        raise FileRefused(f"has more than {limit} bytes, which is the most a picture may have")
    return data
