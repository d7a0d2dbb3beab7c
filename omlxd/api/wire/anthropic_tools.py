"""Tools of a messages request: what the model may call, and what it is told of only later.

A tool with `defer_loading` stays out of the prompt until a `tool_reference` introduces it, so that
a tool search does not change what the prompt begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from omlxd.api.wire import tools
from omlxd.api.wire.tools import Tool
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import ToolChoice

_SEARCH = "tool_search_tool"  # how the types of Anthropic's own tool searches begin
_MODES: Mapping[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}


@dataclass(slots=True)
class Tools:
    """Of one request, in the order in which they were sent."""

    shown: list[Tool] = field(default_factory=list)
    hidden: dict[str, Tool] = field(default_factory=dict)  # by name, until introduced
    foreign: list[str] = field(default_factory=list)  # run by Anthropic's servers only: left out


def read_tools(value: Any) -> Tools:
    """Raises RequestInvalid. A tool has no type, the type `custom`, or at least a schema."""
    if value is None:
        return Tools()
    if not isinstance(value, list):
        raise RequestInvalid("tools: send a list.", param="tools")
    found = Tools()
    has_search = False
    for number, sent in enumerate(value):
        where = f"tools[{number}]"
        if not isinstance(sent, Mapping):
            raise RequestInvalid(f"{where}: send an object with a name.", param=where)
        kind, schema = sent.get("type"), sent.get("input_schema")
        if kind not in (None, "custom") and not isinstance(schema, Mapping):
            found.foreign.append(str(sent.get("name")))
            has_search |= str(kind).startswith(_SEARCH)
            continue
        tool = tools.function_tool(sent.get("name"), sent.get("description"), schema, where)
        if sent.get("defer_loading") is True:
            found.hidden[tool["function"]["name"]] = tool
        else:
            found.shown.append(tool)
    if has_search:  # it cannot run here, so what only it could find is shown
        found.shown += found.hidden.values()
        found.hidden = {}
    return found


def read_choice(value: Any, sent: Tools) -> ToolChoice:
    """Raises RequestInvalid, also for a name that no tool has."""
    if value is None:
        return ToolChoice()
    mode = _MODES.get(str(value.get("type"))) if isinstance(value, Mapping) else None
    if mode is None:
        raise RequestInvalid(
            f"tool_choice: send an object with a type, one of {', '.join(_MODES)}.",
            param="tool_choice",
        )
    parallel = value.get("disable_parallel_tool_use") is not True
    names = []
    if value["type"] == "tool":
        if not isinstance(name := value.get("name"), str):
            raise RequestInvalid("tool_choice.name: send a string.", param="tool_choice.name")
        names = [name]
    known = [*sent.shown, *sent.hidden.values()]
    if mode == "required" and (not known or set(names) & set(sent.foreign)) and sent.foreign:
        mode, names = "auto", []  # what was to be called was left out: text is what can be had
    choice = ToolChoice(mode=mode, names=names, parallel=parallel)
    return tools.named(choice, known, "tool_choice")
