"""The owner of one tool server: starts it at its first use, and ends it.

One task enters the connection and leaves it. It leaves when nothing was asked for a while, when the
server is gone, or when it is told to. After a failure the next use starts the server again, at once
the first time, later not before a delay has passed; nothing starts a server that nobody uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from omlxd.errors import Forbidden, NotFound, RequestTimeout, ToolServerUnavailable
from omlxd.mcp.tools import allow_list, offer, without
from omlxd.mcp.types import Limits, Offered, Result, Server, ServerView, State, Tool
from omlxd.mcp.wires import Connect, Connection, ConnectionLost, Opened, Settings
from omlxd.observe import log

STEADY_S = 60.0  # a server that lived so long has not failed before
MAX_DELAY_S = 60.0
_TAIL_SHOWN = 300  # characters of stderr in a reason


def retry_delay_s(failures: int) -> float:
    """Before the next start, after so many failures on end: 0, 1, 2, 4 … 60."""
    assert failures > 0, "a delay follows a failure"
    return 0.0 if failures == 1 else min(MAX_DELAY_S, 2.0 ** min(failures - 2, 10))


class ToolServer:
    """All methods are for the daemon's event loop."""

    def __init__(
        self,
        asked: Server,
        limits: Limits,
        *,
        connect: Connect,
        folder: Path,
        changed: Callable[[], None],
    ) -> None:
        self.asked = asked
        self.limits = limits
        self._changed = changed
        self._connect = connect
        self._settings = Settings(folder)
        self._owner: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._tools: tuple[Tool, ...] | None = None
        self._opened = Opened(self._is_gone)
        self._settled = asyncio.Event()  # it is up, or did not come up
        self._wake = asyncio.Event()  # the owner is to look again
        self._told_to_leave = False  # at once
        self._retired = False  # when the last call has ended
        self._gone = False
        self._calls = 0
        self._used_at = 0.0
        self._up_at = 0.0
        self._starts = 0
        self._failures = 0
        self._retry_at: float | None = None
        self._reason = asked.off

    # -------------------------------------------------------------- use

    async def offered(self) -> tuple[Offered, ...]:
        """Its tools that may be used. Raises ToolServerUnavailable."""
        async with self._use() as connection, self._limited(f"the list of {self.asked.name}"):
            return offer(self.asked, await self._listed(connection))

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        """Run one of the tools that may be used, by the name it is offered under.

        Raises Forbidden, NotFound, RequestTimeout or ToolServerUnavailable.
        """
        async with self._use() as connection, self._limited(name):
            tool = self._find(name, await self._listed(connection))
            limit = self.limits.max_output_bytes
            return await connection.call(tool.name, arguments, limit=limit)

    @asynccontextmanager
    async def _limited(self, what: str) -> AsyncIterator[None]:
        limit_s = self.limits.call_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError:
            raise RequestTimeout(
                f"{what}: no answer within {limit_s:g} s (mcp.call_timeout); it was given up"
            ) from None

    def _find(self, name: str, tools: tuple[Tool, ...]) -> Tool:
        for offered in offer(self.asked, tools):
            if offered.name == name:
                return offered.tool
        everything = offer(replace(self.asked, allowed=None), tools)
        if any(offered.name == name for offered in everything):
            raise Forbidden(
                f"{name} is not in the allow-list of tool server {self.asked.name}; add it to "
                f"tools in {self.asked.source} if it may be used"
            )
        listed = ", ".join(offered.name for offered in offer(self.asked, tools))
        raise NotFound(f"there is no tool {name!r}; {self.asked.name} has {listed or 'none'}")

    async def _listed(self, connection: Connection) -> tuple[Tool, ...]:
        if self._tools is None or connection.tools_changed:
            self._tools = await connection.tools()
        return self._tools

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[Connection]:
        self._calls += 1
        try:
            connection = await self._connected()
            with self._lost():
                yield connection
        finally:
            self._calls -= 1
            self._used_at = time.monotonic()
            self._wake.set()

    @contextlib.contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except ConnectionLost as error:
            self._is_gone()
            raise ToolServerUnavailable(
                f"tool server {self.asked.name} was lost under the call ({error}); what the call "
                "did is not known. The server is started again at its next use."
            ) from None

    async def _connected(self) -> Connection:
        """Raises ToolServerUnavailable."""
        while self._owner is not None and self._is_leaving:
            await asyncio.wait([self._owner])
        if self._connection is None:
            if self._owner is None:
                self._start()
            await self._settled.wait()
        if self._connection is None:
            raise self._unavailable()
        return self._connection

    @property
    def _is_leaving(self) -> bool:
        return self._settled.is_set() and (self._gone or self._connection is None)

    # -------------------------------------------------------------- the owner

    def _start(self) -> None:
        now = time.monotonic()
        waits = self._retry_at is not None and now < self._retry_at
        if self.asked.off or waits or self._told_to_leave:
            raise self._unavailable()
        self._starts += 1
        self._gone, self._up_at = False, 0.0
        self._settled.clear()
        self._opened = Opened(self._is_gone)
        name = f"tool server {self.asked.name}"
        self._owner = asyncio.create_task(self._own(self._opened), name=name)

    async def _own(self, opened: Opened) -> None:
        began = time.monotonic()
        failed, was_up = "", False
        try:
            async with (
                asyncio.timeout(self.limits.start_timeout_s) as start,
                self._connect(self.asked, self._settings, opened) as connection,
            ):
                self._tools = await connection.tools()
                start.reschedule(None)
                self._is_up(connection, took_s=time.monotonic() - began)
                failed = await self._hold()
                self._connection, was_up = None, True
        except TimeoutError:
            limit_s = self.limits.start_timeout_s
            failed = failed or f"it did not start within {limit_s:g} s (mcp.start_timeout)"
        except Exception as error:
            if was_up:  # what its end raises changes nothing
                self._log("stopping", problem=str(error))
            else:
                failed = self._why(error)
        finally:
            self._connection, self._owner = None, None
            self._ended(failed, opened.tail)
            self._settled.set()

    async def _hold(self) -> str:
        """Until it is to be left; why, if it ended by itself."""
        while not self._told_to_leave and not self._gone:
            if not self._calls and (self._retired or self._idle_left_s() == 0):
                return ""
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._idle_left_s()):
                    await self._wake.wait()
        return "it ended by itself" if self._gone and not self._told_to_leave else ""

    def _idle_left_s(self) -> float | None:
        if self._calls or self.limits.ttl_s is None:
            return None
        return max(0.0, self._used_at + self.limits.ttl_s - time.monotonic())

    def _is_up(self, connection: Connection, *, took_s: float) -> None:
        self._connection = connection
        self._settings = replace(self._settings, is_legacy=connection.is_legacy)
        self._up_at = self._used_at = time.monotonic()
        self._retry_at, self._reason = None, ""
        self._settled.set()
        self._log("started", pid=connection.pid, duration_s=round(took_s, 3))

    def _ended(self, failed: str, tail: str) -> None:
        now = time.monotonic()
        if self._told_to_leave or not failed:
            self._failures = 0
            self._log("stopped")
            return
        lived = self._up_at > 0 and now - self._up_at >= STEADY_S
        self._failures = 1 if lived else self._failures + 1
        self._retry_at = now + retry_delay_s(self._failures)
        words = " ".join(tail.split())[-_TAIL_SHOWN:]
        said = f"; it wrote: {words}" if words else ""
        self._reason = without(failed + said, self.asked.secrets)
        log.get().warning(
            "mcp_server",
            server=self.asked.name,
            state="failed",
            reason=self._reason,
            restart_in_s=retry_delay_s(self._failures),
        )
        self._changed()

    def _why(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            return str(error)
        if isinstance(error, ConnectionLost) and self.asked.via == "stdio":
            return f"it ended before it was ready ({error})"
        return f"it cannot be reached: {str(error) or type(error).__name__}"

    def _is_gone(self) -> None:
        self._gone = True
        self._wake.set()

    # -------------------------------------------------------------- its end, and its state

    def limit(self, limits: Limits) -> None:
        """In force from now on, also for how long it stays idle."""
        self.limits = limits
        self._wake.set()

    def retire(self) -> None:
        """It is no longer asked for: it ends with its last call. No new ones are made."""
        self._retired = True
        self._wake.set()

    async def close(self) -> None:
        """End it now, whoever uses it."""
        self._told_to_leave = True
        self._wake.set()
        owner = self._owner
        if owner is None:
            return
        if self._connection is None:
            owner.cancel()
        await asyncio.wait([owner])

    def kill(self) -> None:
        """Its process and all that it started, at once."""
        if self._connection is not None and self._connection.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._connection.pid, signal.SIGKILL)

    @property
    def is_over(self) -> bool:
        """Retired, and nothing of it is left."""
        return self._retired and self._owner is None

    @property
    def state(self) -> State:
        if self.asked.off:
            return "off"
        if self._owner is None:
            return "backoff" if self._retry_at is not None else "idle"
        if self._connection is not None and not self._gone:
            return "stopping" if self._told_to_leave or self._retired else "ready"
        return "stopping" if self._is_leaving else "starting"

    def view(self) -> ServerView:
        tools, state = self._tools, self.state
        refused, missing = allow_list(self.asked, tools) if tools is not None else ((), ())
        left = None if self._retry_at is None else max(0.0, self._retry_at - time.monotonic())
        return ServerView(
            name=self.asked.name,
            via=self.asked.via,
            source=self.asked.source,
            state=state,
            reason=self._reason,
            retry_in_s=left if state == "backoff" else None,
            pid=self._connection.pid if self._connection else None,
            starts=self._starts,
            calls=self._calls,
            tools=None if tools is None else tuple(o.name for o in offer(self.asked, tools)),
            refused=refused,
            missing=missing,
            allow_all=self.asked.allowed is None,
            notes=self.asked.notes,
        )

    def _unavailable(self) -> ToolServerUnavailable:
        name = self.asked.name
        if self._told_to_leave:
            return ToolServerUnavailable(f"tool server {name} is stopped: omlxd shuts down")
        left = None if self._retry_at is None else max(0.0, self._retry_at - time.monotonic())
        again = "" if left is None else f"; it can be started again in {left:.0f} s"
        message = f"tool server {name} is off: {self._reason}{again}"
        return ToolServerUnavailable(message, retry_after_s=left)

    def _log(self, state: str, **fields: Any) -> None:
        log.get().info("mcp_server", server=self.asked.name, state=state, **fields)
        self._changed()
