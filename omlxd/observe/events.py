"""The ring of past events: what the daemon did and why, numbered, kept across restarts."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from omlxd.observe import log

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened; `seq` rises by one and never restarts while the file lives."""

    seq: int
    time: str  # RFC 3339, UTC
    type: EventType
    reason: str  # CamelCase, unique per situation
    message: str
    model: str = ""


class Subscription:
    """Events from now on. A reader that is too slow loses the oldest, and `dropped` counts them."""

    def __init__(self, size: int) -> None:
        self.dropped = 0
        self._queue: asyncio.Queue[Event] = asyncio.Queue(size)

    async def get(self) -> Event:
        return await self._queue.get()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        return await self._queue.get()

    def _put(self, event: Event) -> None:
        if self._queue.full():
            self._queue.get_nowait()
            self.dropped += 1
        self._queue.put_nowait(event)


class EventRing:
    """Owns the file at `path` (JSON lines). For one event loop; nothing of it is thread-safe."""

    def __init__(self, path: Path, *, capacity: int = 500) -> None:
        self._path = path
        self._capacity = capacity
        self._ring: deque[Event] = deque(maxlen=capacity)
        self._subscriptions: list[Subscription] = []
        self._lines = 0  # in the file
        self._stale = False  # the file is not what the ring is: write it anew
        self._load()

    def append(
        self,
        reason: str,
        message: str,
        *,
        now: float,
        model: str = "",
        type: EventType = "Normal",
    ) -> Event:
        """Numbers the event, keeps it and tells every subscriber. `now` in Unix seconds."""
        event = Event(
            seq=self._ring[-1].seq + 1 if self._ring else 1,
            time=_rfc3339(now),
            type=type,
            reason=reason,
            message=message,
            model=model,
        )
        self._ring.append(event)
        self._save(event)
        for subscription in self._subscriptions:
            subscription._put(event)
        return event

    def since(self, seq: int = 0) -> list[Event]:
        """Kept events after number `seq`, oldest first."""
        return [event for event in self._ring if event.seq > seq]

    @contextmanager
    def subscribe(self, *, size: int = 256) -> Iterator[Subscription]:
        """Holds at most `size` events for a reader that does not keep up."""
        subscription = Subscription(size)
        self._subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.remove(subscription)

    # ---------------------------------------------------------------- the file

    def _load(self) -> None:
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            log.get().warning("events_not_read", path=str(self._path), error=str(error))
            return
        for line in lines:
            try:
                self._ring.append(msgspec.json.decode(line, type=Event))
            except msgspec.MsgspecError as error:  # half a line from a crash, another version's
                self._stale = True
                log.get().warning("events_not_read", path=str(self._path), error=str(error))
        self._lines = len(lines)

    def _save(self, event: Event) -> None:
        """An event that cannot be saved is still in the ring; the next one saves both."""
        try:
            if self._stale or self._lines >= 2 * self._capacity:
                self._rewrite()
            else:
                self._append_line(event)
        except OSError as error:
            self._stale = True
            log.get().warning("events_not_saved", path=str(self._path), error=str(error))
        else:
            self._stale = False

    def _append_line(self, event: Event) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_private(self._path, os.O_APPEND) as file:
            file.write(_line(event))
        self._lines += 1

    def _rewrite(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path.with_name(self._path.name + ".new")
        with _open_private(fresh, os.O_TRUNC) as file:
            file.writelines(map(_line, self._ring))
        fresh.replace(self._path)
        self._lines = len(self._ring)


def _line(event: Event) -> bytes:
    return msgspec.json.encode(event) + b"\n"


def _rfc3339(now: float) -> str:
    moment = datetime.fromtimestamp(now, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _open_private(path: Path, flags: int) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600), "wb")
