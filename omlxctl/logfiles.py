"""Lines of a log and of what was rotated away from it, oldest first, without the daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from omlxctl import exits
from omlxctl.exits import CtlError

POLL_S = 0.2


class LogReader:
    """First `past`, then `follow`, which goes on where `past` ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: BinaryIO | None = None

    def past(self) -> Iterator[str]:
        """Every whole line there is. Raises CtlError when there is no log."""
        rotated = _rotated(self._path)
        self._stream = _open(self._path)
        if self._stream is None and not rotated:
            raise CtlError(
                f"there is no log at {self._path}",
                exit_code=exits.NO_SUCH_OBJECT,
                hint="omlxd has not run with this home; name another one with --home DIR",
            )
        for path in rotated:
            stream = _open(path)
            if stream is not None:
                with stream:
                    yield from _whole_lines(stream)
        if self._stream is not None:
            yield from _whole_lines(self._stream)

    def follow(self) -> Iterator[str]:
        """Lines as they are written, for ever; a log is read to its end when it is rotated."""
        while True:
            if self._stream is None:
                self._stream = _open(self._path)
            if self._stream is not None:
                # Asked before reading: what was written before the rotation is surely read then.
                gone = self._is_rotated(self._stream)
                yield from _whole_lines(self._stream)
                if gone:
                    self._stream.close()
                    self._stream = None
                    continue
            time.sleep(POLL_S)

    def _is_rotated(self, stream: BinaryIO) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(stream.fileno()))
        except FileNotFoundError:
            return True


def _rotated(path: Path) -> list[Path]:
    """server.log.2, server.log.1: the highest number is the oldest."""
    numbered = [
        (int(p.name.rpartition(".")[2]), p)
        for p in path.parent.glob(f"{path.name}.*")
        if p.name.rpartition(".")[2].isdecimal()
    ]
    return [p for _, p in sorted(numbered, reverse=True)]


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CtlError(f"cannot read the log {path}: {error}") from error


def _whole_lines(stream: BinaryIO) -> Iterator[str]:
    """Half a line at the end stays for the next time."""
    while True:
        start = stream.tell()
        line = stream.readline()
        if not line.endswith(b"\n"):
            stream.seek(start)
            return
        yield line.decode("utf-8", "replace").rstrip("\n")
