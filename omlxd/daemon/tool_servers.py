"""Puts `[mcp]` of the spec in force: what its references stand for → servers of the pool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from omlxd.daemon.config import InForce
from omlxd.daemon.references import ToolInputs
from omlxd.mcp.config import FromFile, desired, read_file
from omlxd.mcp.pool import ToolPool
from omlxd.mcp.types import Server, ServerView
from omlxd.observe import log
from omlxd.reconcile.conditions import Condition


class ToolService:
    """Owner of the pool, and of what the mcp.json last said: a broken one changes nothing."""

    def __init__(self, home: Path) -> None:
        self.pool = ToolPool(home)
        self.problem = ""  # of the mcp.json
        self._from_file: Mapping[str, Server] = {}

    def want(self, force: InForce) -> None:
        """Idempotent: what has not changed is not touched."""
        inputs, mcp = force.resolved.tools, force.spec.mcp
        before, self.problem = self.problem, self._read(inputs)
        if self.problem and self.problem != before:
            log.get().warning("mcp_config", problem=self.problem)
        file = force.sources.config
        self.pool.want(desired(mcp, self._from_file, inputs.values.__getitem__, file=file))

    def _read(self, inputs: ToolInputs) -> str:
        """Takes the file's servers over; why not, if it cannot be used."""
        file = inputs.file
        if file.problem:
            return file.problem
        found = read_file(file.text, file.path, os.environ.get) if file.path else FromFile({})
        if found.problem:
            return f"{file.path} {found.problem}"
        self._from_file = found.servers
        return ""

    def condition(self) -> tuple[Condition, ...]:
        """Whether every tool server can be used; nothing if there are none."""
        return tool_servers(self.pool.servers(), self.problem)


def tool_servers(views: tuple[ServerView, ...], problem: str) -> tuple[Condition, ...]:
    if problem:
        message = f"mcp.config: {problem}; its servers stay as they were"
        return (Condition("ToolServers", "False", "FileNotUsed", message),)
    if not views:
        return ()
    off = [f"{view.name}: {view.reason}" for view in views if view.state in ("off", "backoff")]
    if off:
        return (Condition("ToolServers", "False", "ServersOff", "; ".join(off)),)
    message = "; ".join(map(_usable, views))
    return (Condition("ToolServers", "True", "AllUsable", message),)


def _usable(view: ServerView) -> str:
    """Names the tools of a server without an allow-list, as far as they are known."""
    if view.tools is None:
        which = "any tool" if view.allow_all else "its listed tools"
        return f"{view.name} ({which}, not started yet)"
    every = "all: " if view.allow_all else ""
    return f"{view.name} ({every}{', '.join(view.tools) or 'no tools'})"
