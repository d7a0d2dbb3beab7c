"""A web server on a loopback port that says exactly what a test tells it to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from omlxd.api.web_address import Address, is_public

Pieces = list[bytes]  # written one after the other


def says(body: bytes, *headers: str, status: str = "200 OK", kind: str = "image/png") -> Pieces:
    """An answer; `Content-Length` is among the headers unless they have one of their own."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if kind:
        lines.append(f"Content-Type: {kind}")
    if not any(h.lower().startswith(("content-length", "transfer-encoding")) for h in headers):
        lines.append(f"Content-Length: {len(body)}")
    return ["\r\n".join([*lines, "", ""]).encode("latin-1"), body]


def moved(location: str, status: str = "302 Found") -> Pieces:
    return says(b"", f"Location: {location}", status=status, kind="")


def here_too(address: Address) -> bool:
    """Counts 127.0.0.1 as public, and no other address of this machine."""
    return str(address) == "127.0.0.1" or is_public(address)


@dataclass
class Web:
    """`answers` by path. After an answer the server hangs up, unless its path is in `holds`."""

    port: int = 0
    answers: dict[str, Pieces] = field(default_factory=dict)
    holds: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)  # heads, as they came
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client hung up on a held answer
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, path: str = "/x", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        return [head.split(" ")[1] for head in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
            self.requests.append(head)
            self.asked.set()
            path = head.split(" ")[1]
            for piece in self.answers[path]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if path in self.holds:
                await reader.read()
                self.left.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.transport.abort() if writer.is_closing() else writer.close()


@asynccontextmanager
async def web(tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    it = Web()
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0, ssl=tls)
    it.port = server.sockets[0].getsockname()[1]
    async with server:
        yield it
