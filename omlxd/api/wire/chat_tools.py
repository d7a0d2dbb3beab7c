"""Tools and the choice among them as chat clients send them, also under their old names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omlxd.api.wire import tools
from omlxd.api.wire.tools import Tool
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import ToolChoice


def read_tools(body: Mapping[str, Any]) -> list[Tool]:
    """Functions only: tools of other types are left out.

    Raises RequestInvalid, also for two tools of one name.
    """
    found: dict[str, Tool] = {}
    for value, where in _sent(body):
        if not isinstance(value, Mapping):
            raise RequestInvalid(f"{where}: send an object.", param=where)
        tool = tools.function_tool(
            value.get("name"), value.get("description"), value.get("parameters"), where
        )
        if found.setdefault(value["name"], tool) is not tool:
            raise RequestInvalid(f"{where}: there are two tools {value['name']!r}.", param=where)
    return list(found.values())


def is_old_form(body: Mapping[str, Any]) -> bool:
    """Whether functions were sent under their old name, so that a call has its old form too."""
    return bool(body.get("functions")) and not body.get("tools")


def read_choice(body: Mapping[str, Any], sent: list[Tool]) -> ToolChoice:
    """`tool_choice` or `function_call`. Raises RequestInvalid, also for a name no tool has."""
    parallel = body.get("parallel_tool_calls", True)
    if not isinstance(parallel, bool):
        raise RequestInvalid(
            "parallel_tool_calls: send true or false.", param="parallel_tool_calls"
        )
    param = "tool_choice" if "tool_choice" in body else "function_call"
    mode, names = _choice(body.get(param, "auto"), param)
    if mode == "required" and not names and not sent and body.get("tools"):
        mode = "auto"  # what was to be called was left out: text is what can be had
    parallel = parallel and not is_old_form(body)  # which has room for one
    choice = ToolChoice(mode=mode, names=names, parallel=parallel)  # type: ignore[arg-type]
    return tools.named(choice, sent, param)


def _sent(body: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Each function, and where it stands."""
    both: list[tuple[Any, str]] = []
    for key in ("tools", "functions"):
        values = body.get(key, [])
        if not isinstance(values, list):
            raise RequestInvalid(f"{key}: send a list.", param=key)
        for number, value in enumerate(values):
            where = f"{key}[{number}]"
            if key == "functions":
                both.append((value, where))
                continue
            if not isinstance(value, Mapping):
                raise RequestInvalid(f"{where}: send an object with a type.", param=where)
            if value.get("type", "function") == "function":
                flat = value if "name" in value else None  # a common slip: the shape of responses
                both.append((value.get("function", flat), f"{where}.function"))
    return both


def _choice(value: Any, param: str) -> tuple[str, list[str]]:
    if value in ("auto", "none", "required"):
        return str(value), []
    if isinstance(value, Mapping):
        allowed = value.get("allowed_tools")
        if value.get("type") == "allowed_tools" and isinstance(allowed, Mapping):
            return _allowed(allowed, f"{param}.allowed_tools")
        function = value.get("function", value)
        if isinstance(function, Mapping) and isinstance(name := function.get("name"), str):
            return "required", [name]
    raise RequestInvalid(
        f"{param}: send auto, none, required, or an object that names a function.", param=param
    )


def _allowed(value: Mapping[str, Any], param: str) -> tuple[str, list[str]]:
    mode, listed = value.get("mode", "auto"), value.get("tools")
    if mode not in ("auto", "required"):
        raise RequestInvalid(f"{param}.mode: send auto or required.", param=f"{param}.mode")
    if not isinstance(listed, list):
        raise RequestInvalid(f"{param}.tools: send a list.", param=f"{param}.tools")
    names = [_choice(tool, f"{param}.tools[{i}]")[1] for i, tool in enumerate(listed)]
    flat = [name for group in names for name in group]
    return (mode, flat) if flat else ("none", [])  # no names would allow all
