"""Tool servers without processes: what they were asked, and answers from a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from omlxd.ipc.messages import (
    Accepted,
    Delta,
    Event,
    Finished,
    GenerateRequest,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
)
from omlxd.mcp.pool import ToolPool
from omlxd.mcp.types import Desired, Limits, Result, Server, Tool
from omlxd.mcp.wires import ConnectionLost, Opened, Settings
from tests.fakes.fake_gateway import completed

Answer = Callable[[str, dict[str, Any]], Awaitable[Result]]

ECHO = Tool(name="echo", description="Says it again.", schema={"type": "object", "properties": {}})
SECRET = Tool(name="secret")


async def echo(name: str, arguments: dict[str, Any]) -> Result:
    return Result(text=f"{name} {arguments}")


class FakeConnection:
    """Implements `omlxd.mcp.wires.Connection`."""

    def __init__(self, world: FakeTools, server: Server) -> None:
        self.pid: int | None = None
        self.is_legacy = world.is_legacy
        self.tools_changed = False
        self._world = world
        self._server = server

    async def tools(self) -> tuple[Tool, ...]:
        self.tools_changed = False
        self._world.lists += 1
        if self._world.hang_list is not None:
            await self._world.hang_list.wait()
        return self._world.tools

    async def call(self, name: str, arguments: dict[str, Any], *, limit: int) -> Result:
        self._world.calls.append((self._server.name, name, arguments))
        return await self._world.answer(name, arguments)


class FakeTools:
    """The world of tool servers that a pool over `connect` meets."""

    def __init__(self, *, tools: tuple[Tool, ...] = (ECHO, SECRET), answer: Answer = echo) -> None:
        self.tools = tools
        self.answer = answer
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.lists = 0
        self.hang_list: asyncio.Event | None = None  # a list of tools waits for it
        self.is_legacy = False
        self.events: list[str] = []  # "start NAME", "end NAME"
        self.broken: dict[str, Exception] = {}  # servers that do not start
        self.live: dict[str, FakeConnection] = {}
        self.opened: dict[str, Opened] = {}
        self.settings: list[Settings] = []
        self.changed = asyncio.Event()

    @asynccontextmanager
    async def connect(
        self, server: Server, settings: Settings, opened: Opened
    ) -> AsyncIterator[FakeConnection]:
        self._say(f"start {server.name}")
        self.settings.append(settings)
        if server.name in self.broken:
            opened.tail = "last words"
            raise self.broken[server.name]
        connection = self.live[server.name] = FakeConnection(self, server)
        self.opened[server.name] = opened
        try:
            yield connection
        finally:
            del self.live[server.name]
            self._say(f"end {server.name}")

    async def until(self, event: str) -> None:
        """Returns when it is among the events."""
        while event not in self.events:
            self.changed.clear()
            await self.changed.wait()

    def pool(self, *servers: Server, limits: Limits | None = None) -> ToolPool:
        pool = ToolPool(Path("/"), connect=self.connect)
        pool.want(desired(*servers, limits=limits))
        return pool

    def _say(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()


def asked(name: str = "lab", **facts: Any) -> Server:
    return Server(name=name, source="omlx.toml", **{"command": "lab", **facts})


def desired(*servers: Server, limits: Limits | None = None) -> Desired:
    return Desired(servers={one.name: one for one in servers}, limits=limits or Limits())


async def lose(name: str, arguments: dict[str, Any]) -> Result:
    raise ConnectionLost("gone")


def hanging(begun: asyncio.Event, cancelled: asyncio.Event) -> Answer:
    """A tool that never answers."""

    async def hang(name: str, arguments: dict[str, Any]) -> Result:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("it was not cancelled")

    return hang


async def use_a_tool(request: GenerateRequest) -> AsyncIterator[Event]:
    """Calls lab__echo; once it has a result, says it and is done."""
    assert request.messages is not None
    last = request.messages[-1]
    yield Accepted(request.request_id, 7)
    if last["role"] == "tool":
        yield Delta(request.request_id, 0, f"It said {last['content']}.")
        yield Finished(request.request_id, 0, "stop")
    else:
        yield ToolCallBegin(request.request_id, 0, 0, "lab__echo", 1)
        yield ToolCallArguments(request.request_id, 0, 0, '{"a": 1}', 3)
        yield ToolCallEnd(request.request_id, 0, 0)
        yield Finished(request.request_id, 0, "tool_calls")
    yield completed(request, output_tokens=4)
