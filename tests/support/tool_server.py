"""A tool server for tests, as a program: over stdio, or over HTTP on the port that is named."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("lab")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def where() -> str:
    """The folder it runs in, its process and its process group."""
    return f"{Path.cwd()} {os.getpid()} {os.getpgrp()}"


@server.tool()
def variables() -> str:
    """The names and values of its environment."""
    return "\n".join(sorted(f"{name}={value}" for name, value in os.environ.items()))


@server.tool()
def big(size: int) -> str:
    """A text of so many characters of two bytes each."""
    return "ü" * size


@server.tool()
def picture() -> Image:
    """Eight bytes that are said to be a picture."""
    return Image(data=b"8 bytes!", format="png")


@server.tool()
def boom() -> str:
    """Fails."""
    raise ValueError("no such file")


@server.tool()
def die(word: str) -> str:
    """Ends the server at once."""
    sys.stderr.write(f"{word}\n")
    sys.stderr.flush()
    os._exit(9)


@server.tool()
def child() -> str:
    """Starts a process that outlives the server; its process id."""
    left = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return str(left.pid)


@server.tool()
async def hang(mark: str) -> str:
    """Never answers; makes a file when it begins, and another when it is cancelled."""
    os.close(os.open(f"{mark}.begun", os.O_CREAT))
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        os.close(os.open(f"{mark}.cancelled", os.O_CREAT))
        raise
    return ""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
