"""Tools in the neutral form, from whatever shape a dialect has them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import ToolChoice

Tool = dict[str, Any]

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def function_tool(name: Any, description: Any, parameters: Any, where: str) -> Tool:
    """One tool. Clients leave out the description, the schema, or both."""
    if not isinstance(name, str) or not name:
        raise RequestInvalid(f"{where}.name: send the tool's name, a string.", param=where)
    if not isinstance(parameters, Mapping | None):
        raise RequestInvalid(f"{where}: the schema must be an object.", param=where)
    schema = {**NO_PARAMETERS, **(parameters or {})}
    text = description if isinstance(description, str) else ""
    return {
        "type": "function",
        "function": {"name": name, "description": text, "parameters": schema},
    }


def names(tools: Iterable[Tool]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def named(choice: ToolChoice, tools: Sequence[Tool], param: str) -> ToolChoice:
    """The choice, once every name in it is the name of a tool that was sent."""
    known = names(tools)
    for name in choice.names:
        if name not in known:
            raise RequestInvalid(
                f"{param}: there is no tool {name!r} in tools, "
                f"which has {', '.join(known) or 'none'}.",
                param=param,
            )
    if choice.mode == "required" and not known:
        raise RequestInvalid(f"{param}: a call is required, but no tools were sent.", param=param)
    return choice


def definition(tool: Tool) -> str:
    """A tool as text, for one that is made known in the middle of a conversation."""
    return msgspec.json.encode(tool["function"], order="sorted").decode()
