"""Tools under the names that models use, and their results as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omlxd.mcp.types import Block, Offered, Server, Tool

SEPARATOR = "__"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")  # what clients' own rules do not let through
_ANY_OBJECT: Mapping[str, Any] = {"type": "object", "properties": {}}


def offered_name(server: str, tool: str) -> str:
    return f"{server}{SEPARATOR}{_NOT_IN_NAMES.sub('_', tool)}"


def offer(server: Server, tools: Iterable[Tool]) -> tuple[Offered, ...]:
    """What of a server's tools may be used; of two that would have one name, the first."""
    found: dict[str, Offered] = {}
    for tool in tools:
        if server.allows(tool.name):
            name = offered_name(server.name, tool.name)
            found.setdefault(name, Offered(name=name, server=server.name, tool=tool))
    return tuple(found.values())


def function(offered: Offered) -> dict[str, Any]:
    """The tool in the form of a neutral request."""
    schema = {**_ANY_OBJECT, **offered.tool.schema}
    return {
        "type": "function",
        "function": {
            "name": offered.name,
            "description": offered.tool.description,
            "parameters": schema,
        },
    }


def allow_list(server: Server, tools: Sequence[Tool]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tools that there are and may not be used, and tools that may be used and are not there."""
    names = [tool.name for tool in tools]
    refused = tuple(name for name in names if not server.allows(name))
    return refused, tuple(name for name in server.allowed or () if name not in names)


# ------------------------------------------------------------------ results


def result_text(blocks: Iterable[Block], limit: int) -> str:
    """All blocks, one under the other, in at most `limit` bytes of UTF-8 and a note."""
    return cut("\n".join(map(_told, blocks)), limit)


def cut(text: str, limit: int) -> str:
    """The text, or its first `limit` bytes, never half a character, and how much was cut off."""
    if len(text) * 4 <= limit:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= limit:
        return text
    kept = raw[:limit].decode("utf-8", "ignore")
    return f"{kept}\n[cut: {limit:,} of {len(raw):,} bytes are shown; ask for less at once]"


def without(text: str, secrets: Iterable[str]) -> str:
    """The text of a server for people, with what must not be shown blanked."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 4:  # a shorter one is no secret, and would blank half of all words
            text = text.replace(secret, "***")
    return text


def _told(block: Block) -> str:
    if block.kind == "text":
        return block.text
    kind = block.media_type or block.kind
    where = f" at {block.text}" if block.text else ""
    if block.kind == "link":
        return f"[link to {kind}{where}]"
    return f"[{block.kind} omitted: {kind}, {block.size:,} bytes{where}; only text is passed on]"
