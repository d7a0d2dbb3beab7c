"""What the owner of a server needs of a connection; `connection` has it, and tests may fake it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from omlxd.mcp.types import Result, Server, Tool


class ConnectionLost(Exception):
    """There is nobody at the other end any more."""


@dataclass(frozen=True, slots=True)
class Settings:
    folder: Path  # where a process is started: never the one that omlxd happens to run in
    is_legacy: bool = False  # the server is known to speak the older protocol


@dataclass(slots=True)
class Opened:
    """What is known of a process whether or not a connection comes of it."""

    gone: Callable[[], None]  # called when it has ended by itself
    tail: str = ""  # what it wrote to stderr last


class Connection(Protocol):
    """Entered and left in one task, used from any."""

    pid: int | None
    is_legacy: bool
    tools_changed: bool  # since they were listed

    async def tools(self) -> tuple[Tool, ...]:
        """Raises ConnectionLost, or what the SDK raises."""
        ...

    async def call(self, name: str, arguments: dict[str, Any], *, limit: int) -> Result:
        """What the server refuses is a result too. Raises ConnectionLost."""
        ...


Connect = Callable[[Server, Settings, Opened], AbstractAsyncContextManager[Connection]]
