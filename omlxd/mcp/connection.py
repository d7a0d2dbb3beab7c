"""One connection to a tool server, over the official SDK. The only module that imports it.

Importing the SDK takes over half a second and 46 MB, so this module is imported, in a thread, when
the first server is started. A connection is entered and left in one task; calls come from any.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import psutil
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolListChangedNotification,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from omlxd.mcp.tools import result_text
from omlxd.mcp.types import Block, Result, Server, Tool
from omlxd.mcp.wires import ConnectionLost, Opened, Settings

MAX_PAGES = 50  # of a list of tools
TAIL_BYTES = 2048  # of what a server wrote to stderr last
_LOOKS, _LOOK_AGAIN_S = 50, 0.02
_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=None)  # a call's own limit counts
_LOST_OVER_HTTP = (CONNECTION_CLOSED, -32600)  # the second: the server knows the session no more

# What servers send, and addresses with secrets in them, would stand in the log otherwise.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class SdkConnection:
    """Implements `omlxd.mcp.wires.Connection`."""

    def __init__(self, client: Client, server: Server, *, pid: int | None) -> None:
        self._client = client
        self._lost_by = _LOST_OVER_HTTP if server.url else (CONNECTION_CLOSED,)
        self.pid = pid
        self.is_legacy = client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        self.tools_changed = False

    async def tools(self) -> tuple[Tool, ...]:
        self.tools_changed = False
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
            except (MCPError, RuntimeError, ValueError) as error:
                raise ConnectionLost(f"its tools cannot be listed: {error}") from error
            found += [
                Tool(name=one.name, description=one.description or "", schema=one.input_schema)
                for one in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None:
                break
        return tuple(found)

    async def call(self, name: str, arguments: dict[str, Any], *, limit: int) -> Result:
        try:
            found = await self._client.call_tool(name, arguments)
        except MCPError as error:
            if error.code in self._lost_by:
                raise ConnectionLost(str(error)) from error
            return Result(text=str(error), is_error=True)
        except (RuntimeError, ValueError) as error:  # what came is no result
            text = f"{type(error).__name__}: {error}"
            return Result(text=result_text([Block("text", text)], limit), is_error=True)
        return Result(text=result_text(_blocks(found), limit), is_error=bool(found.is_error))


@asynccontextmanager
async def connect(
    server: Server, settings: Settings, opened: Opened
) -> AsyncIterator[SdkConnection]:
    """A server, started or reached.

    Raises ConnectionLost when it ended or hung up, FileNotFoundError, or what the SDK raises;
    `opened.tail` says more.
    """
    try:
        async with _connect(server, settings, opened) as connection:
            yield connection
    except Exception as error:
        bottom = _bottom(error)
        if isinstance(bottom, MCPError) and bottom.code == CONNECTION_CLOSED:
            raise ConnectionLost("it ended, or hung up") from error
        raise bottom from error


@asynccontextmanager
async def _connect(
    server: Server, settings: Settings, opened: Opened
) -> AsyncIterator[SdkConnection]:
    mode = "legacy" if settings.is_legacy else "auto"
    made: list[SdkConnection] = []

    async def heard(message: object) -> None:
        if isinstance(message, ToolListChangedNotification) and made:
            made[0].tools_changed = True

    if server.url:
        async with (
            httpx2.AsyncClient(headers=dict(server.headers), timeout=_HTTP_TIMEOUT) as http,
            Client(
                streamable_http_client(server.url, http_client=http),
                mode=mode,
                message_handler=heard,
            ) as client,
        ):
            made.append(SdkConnection(client, server, pid=None))
            yield made[0]
        return
    async with _Child(opened) as child:
        transport = stdio_client(_parameters(server, settings.folder), errlog=child.stderr)
        async with Client(transport, mode=mode, message_handler=heard) as client:
            child.started()
            made.append(SdkConnection(client, server, pid=await child.pid))
            yield made[0]


def _bottom(error: Exception) -> Exception:
    """The first of the errors that the SDK's task groups wrap, each in another."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _parameters(server: Server, folder: Path) -> StdioServerParameters:
    """The shell says its process id, which the SDK keeps to itself, and becomes the server.

    Raises FileNotFoundError.
    """
    return StdioServerParameters(
        command="/bin/sh",
        args=["-c", 'echo "$$" >&2; exec "$@"', "sh", _program(server), *server.args],
        env=dict(server.env),
        cwd=folder,
    )


def _program(server: Server) -> str:
    """Its whole path; folders on PATH that depend on where omlxd runs do not count."""
    written = server.env.get("PATH", os.environ.get("PATH", os.defpath))
    path = os.pathsep.join(one for one in written.split(os.pathsep) if one.startswith("/"))
    found = shutil.which(os.path.expanduser(server.command), path=path)
    if found is None:
        raise FileNotFoundError(f"{server.command} is not a program on PATH, which is {path}")
    return found


class _Child:
    """The stderr of a server's process, and the end of all that it started.

    The SDK gives the process a group of its own, closes its stdin, and waits before it kills; what
    the process itself left behind is killed here.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> _Child:
        read, write = os.pipe()
        self.stderr = os.fdopen(write, "w")
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        self._pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb")
        )
        self._reading = loop.create_task(self._read(reader), name="stderr of a tool server")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stderr.close()
        if self._pid.done() and not self._pid.cancelled():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid.result(), signal.SIGKILL)
        await asyncio.wait([self._reading], timeout=1.0)  # for its last words
        self._reading.cancel()
        self._pipe.close()
        await asyncio.gather(self._reading, return_exceptions=True)

    @property
    def pid(self) -> asyncio.Future[int]:
        return self._pid

    def started(self) -> None:
        """From here on the process alone holds the other end, so that its end is seen."""
        self.stderr.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        tail = bytearray()
        while chunk := await reader.read(4096):
            tail += chunk
            if not self._pid.done():
                first, newline, rest = bytes(tail).partition(b"\n")
                if not newline:
                    continue
                self._pid.set_result(int(first))
                tail = bytearray(rest)
            del tail[:-TAIL_BYTES]
            self._opened.tail = tail.decode(errors="replace")
        if self._pid.done() and await _has_ended(self._pid.result()):
            self._opened.gone()


async def _has_ended(pid: int) -> bool:
    """Whether a process whose stderr is closed is gone; a server may close it and live.

    A process that ends closes its files a moment before it counts as ended.
    """
    for _ in range(_LOOKS):
        if not _is_alive(pid):
            return True
        await asyncio.sleep(_LOOK_AGAIN_S)
    return False


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _blocks(found: CallToolResult) -> Iterator[Block]:
    for content in found.content:
        match content:
            case TextContent():
                yield Block("text", content.text)
            case ImageContent():
                yield Block("image", "", content.mime_type, _decoded_size(content.data))
            case AudioContent():
                yield Block("audio", "", content.mime_type, _decoded_size(content.data))
            case ResourceLink():
                yield Block("link", str(content.uri), content.mime_type or "")
            case EmbeddedResource(resource=resource):
                if isinstance(resource, BlobResourceContents):
                    size = _decoded_size(resource.blob)
                    yield Block("file", str(resource.uri), resource.mime_type or "", size)
                else:
                    yield Block("text", resource.text)
    if not found.content and found.structured_content is not None:
        yield Block("text", msgspec.json.encode(found.structured_content).decode())


def _decoded_size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")
