"""The real control app over a real Unix socket, in the test's own loop, and raw requests to it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from omlxd.control.app import create_control_app
from omlxd.control.ports import Control


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stop = asyncio.Event()

    async def main_loop(self) -> None:
        await self.stop.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def short_home() -> Iterator[Path]:
    """A home whose socket path fits in a Unix socket address, whatever the test is called."""
    home = Path(tempfile.mkdtemp(prefix="omlx"))
    try:
        (home / "run").mkdir()
        yield home
    finally:
        shutil.rmtree(home)


@asynccontextmanager
async def serving(control: Control, path: Path) -> AsyncIterator[None]:
    """Answers on `path`, at once; open streams are cut at the end."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    config = uvicorn.Config(
        create_control_app(control),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=0,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        server.stop.set()
        await task
        sock.close()
        path.unlink()  # noqa: ASYNC240 (a name in a temporary folder)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


async def ask(
    path: Path,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request, from a thread, so the server can answer meanwhile."""

    def exchange() -> Answer:
        connection = _Connection(path)
        with contextlib.closing(connection):
            connection.request(method, target, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    return await asyncio.to_thread(exchange)
