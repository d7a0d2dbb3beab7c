"""The answer to one job: head, frames, keep-alives, and the end of it, whatever ends it.

One task takes the events and writes; a second watches for the client to leave; a third writes a
keep-alive when nothing was written for a while. Writing waits for the client, so a slow reader
holds back its own stream and nothing piles up here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from starlette.types import Receive, Scope, Send

from omlxd.api.body import ClientGone
from omlxd.api.meter import Meter
from omlxd.api.respond import REQUEST_ID, RawHeaders, send_body, send_error
from omlxd.api.wire.dialect import Job
from omlxd.api.wire.fold import Fold
from omlxd.errors import EngineFailed, OmlxError
from omlxd.ipc.messages import Accepted, Completed, Event

Source = AbstractAsyncContextManager[AsyncIterator[Event]]
_STREAM_HEADERS: RawHeaders = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds, monotonic."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a client is left without a byte."""

    head_hold_s: float = 10.0  # from the request's arrival
    keep_alive_s: float = 5.0


class Reply:
    """Owner of one response. `run` returns when it is complete, or raises ClientGone."""

    def __init__(
        self, job: Job, *, scope: Scope, send: Send, meter: Meter, clock: Clock, pace: Pace
    ) -> None:
        self._job = job
        self._scope = scope
        self._send = send
        self._meter = meter
        self._clock = clock
        self._pace = pace
        self._fold = None if job.stream else Fold(job.n * len(job.requests))
        self._turn = asyncio.Lock()  # held over a write
        self._head_due = clock.now() + pace.head_hold_s
        self._head_sent = False
        self._complete = False  # the last write has begun
        self._last_write = 0.0

    async def run(self, source: Source, receive: Receive) -> None:
        """Answers from `source`; leaving it early, for any reason, cancels the request."""
        name = self._scope[REQUEST_ID]
        try:
            async with asyncio.TaskGroup() as group:
                others = [group.create_task(self._watch(receive), name=f"watch {name}")]
                if self._job.stream:
                    others.append(group.create_task(self._keep_alive(), name=f"tick {name}"))
                await self._answer(source)
                for task in others:
                    task.cancel()
        except BaseExceptionGroup as errors:
            gone, rest = errors.split(ClientGone)
            if gone is None or rest is not None:
                raise
            raise ClientGone from None

    async def _answer(self, source: Source) -> None:
        try:
            async with source as events:
                async for event in events:
                    await self._take(event)
                    if isinstance(event, Completed):
                        return
            raise EngineFailed("The request ended without a result. Send it again.")
        except OmlxError as error:
            await self._fail(error)
        except Exception:
            await self._fail(EngineFailed("The server failed; its log has the details."))
            raise

    async def _take(self, event: Event) -> None:
        self._meter.note(event, self._clock.now())
        ends = isinstance(event, Completed)
        if self._fold is None:
            frames = self._job.renderer.event(event)
            if frames or isinstance(event, Accepted):
                await self._write(frames, last=ends)
            return
        self._fold.add(event)
        if ends:
            self._complete = True
            self._meter.close(self._clock.now())
            await send_body(self._send, self._job.renderer.result(self._fold))

    async def _write(self, frames: bytes, *, last: bool = False) -> None:
        async with self._turn:
            if self._complete:
                return
            if not self._head_sent:
                self._head_sent = True
                head = {"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS}
                await self._send(head)
            if last:
                self._complete = True
                self._meter.close(self._clock.now())
            if frames:
                body = {"type": "http.response.body", "body": frames, "more_body": not last}
                await self._send(body)
            self._last_write = self._clock.now()

    async def _fail(self, error: OmlxError) -> None:
        """A status while the head is unsent, the dialect's error frames after it."""
        self._meter.fail(error)
        async with self._turn:
            if self._complete:
                return
            self._complete = True
            self._meter.close(self._clock.now())
            if self._head_sent:
                frames = self._job.renderer.failure(error)
                await self._send({"type": "http.response.body", "body": frames})
            else:
                await send_error(self._scope, self._send, error)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not self._complete:
            raise ClientGone

    async def _keep_alive(self) -> None:
        """By the clock, not by progress: a slow prefill must not look like a dead server."""
        while not self._complete:
            due = self._last_write + self._pace.keep_alive_s if self._head_sent else self._head_due
            wait = due - self._clock.now()
            if wait > 0:
                await self._clock.sleep(min(wait, self._pace.keep_alive_s))
            else:
                await self._write(self._job.keep_alive)
