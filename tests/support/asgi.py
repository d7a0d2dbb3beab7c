"""One POST to an ASGI application, message by message, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message


class Exchange:
    """Runs the request in a task; `sent` is what the application has sent so far."""

    def __init__(self, app: ASGIApp, path: str, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.sent: list[Message] = []
        self.gone = asyncio.Event()  # the client leaves
        self.reading = asyncio.Event()  # cleared: the client reads no further
        self.reading.set()
        self._inbox = [{"type": "http.request", "body": raw, "more_body": False}]
        self._changed = asyncio.Condition()
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    async def until(self, holds: Callable[[], bool]) -> None:
        """Returns when something was sent that makes it hold."""
        async with self._changed:
            await self._changed.wait_for(holds)

    async def _receive(self) -> Message:
        if self._inbox:
            return self._inbox.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        async with self._changed:
            self.sent.append(message)
            self._changed.notify_all()
        await self.reading.wait()
