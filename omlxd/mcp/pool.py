"""All tool servers: one owner each, changed one by one, used by replies and by the HTTP routes.

The same functions serve both, so that allow-list and limits hold wherever a call comes from.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from omlxd.errors import NotFound, OmlxError
from omlxd.mcp.server import ToolServer
from omlxd.mcp.tools import SEPARATOR
from omlxd.mcp.types import Desired, Limits, Offer, Offered, Result, Server, ServerView
from omlxd.mcp.wires import Connect, Connection, Opened, Settings
from omlxd.observe import log

OnCall = Callable[[str, str], None]  # server, and "ok", "error" or an error's code


@asynccontextmanager
async def connect(server: Server, settings: Settings, opened: Opened) -> AsyncIterator[Connection]:
    """A connection over the SDK, which is imported at the first one, beside the event loop."""
    module = await asyncio.to_thread(importlib.import_module, "omlxd.mcp.connection")
    async with cast(Connect, module.connect)(server, settings, opened) as connection:
        yield connection


class ToolPool:
    """Owned by the daemon's event loop. `folder` is where processes are started."""

    def __init__(self, folder: Path, *, connect: Connect = connect) -> None:
        self._folder = folder
        self._connect = connect
        self._servers: dict[str, ToolServer] = {}
        self._retired: list[ToolServer] = []
        self.limits = Limits()
        self.on_call: OnCall = lambda server, outcome: None
        self.on_change: Callable[[], None] = lambda: None  # of what `servers` tells

    def want(self, desired: Desired) -> None:
        """Servers that changed end with their last call; the others are not touched."""
        self.limits = desired.limits
        before, self._servers = self._servers, {}
        for name, asked in desired.servers.items():
            server = before.pop(name, None)
            if server is not None and server.asked != asked:
                before[name], server = server, None
            if server is None:
                server = ToolServer(
                    asked,
                    desired.limits,
                    connect=self._connect,
                    folder=self._folder,
                    changed=lambda: self.on_change(),
                )
            server.limit(desired.limits)
            self._servers[name] = server
        for server in before.values():
            server.retire()
        self._retired = [s for s in (*self._retired, *before.values()) if not s.is_over]

    def servers(self) -> tuple[ServerView, ...]:
        return tuple(server.view() for server in self._servers.values())

    async def offered(self, names: Sequence[str] | None = None) -> Offer:
        """Tools of these servers, or of all; those that are not running are started."""
        wanted = tuple(self._servers) if names is None else tuple(dict.fromkeys(names))
        found = await asyncio.gather(*(self._offered_by(name) for name in wanted))
        tools = [tool for one in found if not isinstance(one, OmlxError) for tool in one]
        off = {
            name: one for name, one in zip(wanted, found, strict=True) if isinstance(one, OmlxError)
        }
        return Offer(tuple(tools), off)

    async def call(self, name: str, arguments: dict[str, Any], *, request_id: str) -> Result:
        """Run one tool by its offered name. Raises OmlxError; a tool's own failure is a result."""
        server = self._find(name.partition(SEPARATOR)[0])
        began = time.monotonic()
        fields: dict[str, Any] = {"server": server.asked.name, "tool": name}
        outcome = "cancelled"
        try:
            result = await server.call(name, arguments)
            outcome = "error" if result.is_error else "ok"
            fields["bytes"] = len(result.text.encode(errors="replace"))
            return result
        except OmlxError as error:
            outcome = error.code
            fields["error"] = error.message
            raise
        finally:
            took_ms = round((time.monotonic() - began) * 1e3, 1)
            log.get().info(
                "mcp_call", request_id=request_id, outcome=outcome, duration_ms=took_ms, **fields
            )
            self.on_call(server.asked.name, outcome)

    async def close(self) -> None:
        """End all of them, at shutdown."""
        everyone = (*self._servers.values(), *self._retired)
        await asyncio.gather(*(server.close() for server in everyone))

    def kill(self) -> None:
        """End their processes at once, when the daemon itself ends so."""
        for server in (*self._servers.values(), *self._retired):
            server.kill()

    async def _offered_by(self, name: str) -> tuple[Offered, ...] | OmlxError:
        try:
            return await self._find(name).offered()
        except OmlxError as error:
            return error

    def _find(self, name: str) -> ToolServer:
        server = self._servers.get(name)
        if server is None:
            listed = ", ".join(self._servers) or "none"
            raise NotFound(f"there is no tool server {name!r}; there are: {listed}", param="mcp")
        return server
