"""A real uvicorn on a free loopback port in the test's own loop, and raw requests to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.down = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    async def main_loop(self) -> None:
        await self.down.wait()


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[int]:
    """Serves `app`; gives the port."""
    sock = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", ws="none", proxy_headers=False
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    await server.up.wait()
    try:
        yield sock.getsockname()[1]
    finally:
        server.down.set()
        await task
        sock.close()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    port: int,
    method: str,
    path: str,
    *,
    headers: list[tuple[str, str]] | None = None,
    body: bytes = b"",
    host: str | None = "127.0.0.1",
) -> Answer:
    """One request with exactly these headers, on a connection of its own."""
    lines = [f"{method} {path} HTTP/1.1", "Connection: close"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in headers or []]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    return parse_answer(raw)


def parse_answer(raw: bytes) -> Answer:
    head, _, rest = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        rest = _unchunk(rest)
    return Answer(int(status.split()[1]), headers, rest)


def _unchunk(rest: bytes) -> bytes:
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return body


JSON_BODY = [("Content-Type", "application/json")]


async def post(
    port: int, path: str, body: Any, *, headers: list[tuple[str, str]] | None = None
) -> Answer:
    """A JSON body to a route."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await ask(port, "POST", path, headers=[*JSON_BODY, *(headers or [])], body=raw)
