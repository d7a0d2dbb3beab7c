"""What a worker prints: into the log, line by line, with the last lines kept for its obituary."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
from collections import deque
from collections.abc import Callable
from typing import BinaryIO, cast

MAX_LINE = 4000  # characters; what is longer is cut
KEPT_LINES = 30

_LINE_END = re.compile(r"[\r\n]")  # a progress bar redraws itself with \r


class LineSplitter:
    """Bytes in, finished lines out: decoded, without their ends, bounded, none empty."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""

    def feed(self, data: bytes) -> list[str]:
        """Lines that ended in `data`."""
        return self._split(self._decoder.decode(data))

    def finish(self) -> list[str]:
        """The line that never ended, if there is one."""
        return self._split(self._decoder.decode(b"", final=True) + "\n")

    def _split(self, text: str) -> list[str]:
        first, *others = _LINE_END.split(text)
        self._grow(first)
        ended = []
        for part in others:
            ended.append(self._line)
            self._line = ""
            self._grow(part)
        return [cut for line in ended if (cut := _cut(line.rstrip()))]

    def _grow(self, text: str) -> None:
        # One character beyond the limit, so that a cut line can be told from one that just fits.
        self._line += text[: MAX_LINE + 1 - len(self._line)]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else line[:MAX_LINE] + "…"


class WorkerOutput(asyncio.Protocol):
    """The read end of the pipe that is a worker's stdout and stderr."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.ended = asyncio.Event()
        self._on_line = on_line
        self._splitter = LineSplitter()
        self._last: deque[str] = deque(maxlen=KEPT_LINES)
        self._transport: asyncio.ReadTransport | None = None

    @classmethod
    async def open(cls, pipe: BinaryIO, on_line: Callable[[str], None]) -> WorkerOutput:
        """Takes the pipe over; no line comes before `start`."""
        loop = asyncio.get_running_loop()
        _, output = await loop.connect_read_pipe(lambda: cls(on_line), pipe)
        return output

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last KEPT_LINES, oldest first."""
        return tuple(self._last)

    def start(self) -> None:
        self._opened.resume_reading()

    def close(self) -> None:
        """For a pipe that some other process still holds open."""
        self._opened.close()

    @property
    def _opened(self) -> asyncio.ReadTransport:
        assert self._transport is not None, "made by `open`"
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)
        self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._take(self._splitter.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._take(self._splitter.finish())
        self.ended.set()

    def _take(self, lines: list[str]) -> None:
        for line in lines:
            self._last.append(line)
            self._on_line(line)


def output_pipe() -> tuple[BinaryIO, BinaryIO]:
    """(read end, write end), neither inheritable as it is."""
    read_fd, write_fd = os.pipe()
    return os.fdopen(read_fd, "rb", buffering=0), os.fdopen(write_fd, "wb", buffering=0)
