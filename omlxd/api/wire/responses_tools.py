"""Tools of a responses request: what the model is offered, and what the client calls it.

A model knows functions with one flat name each. A tool inside a namespace is offered under both
names joined, and a custom tool as a function with the one string `input`; a call of either goes
back in the client's own terms. Which name is offered depends on the tool alone, so that a call in
the history has the same name with or without its tool. Tools that only OpenAI's servers can run
are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from omlxd.api.wire import tools
from omlxd.api.wire.tools import Tool
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import ToolChoice

Mode = Literal["auto", "none", "required"]
CUSTOM_INPUT = "input"  # the one parameter of a custom tool

_MODES: Mapping[str, Mode] = {mode: mode for mode in get_args(Mode)}
_CALLABLE = ("function", "custom")
_DEFAULT_NAMESPACE = "functions"  # clients name it where a tool was sent outside of any
_CUSTOM_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What its client calls a tool."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


@dataclass(slots=True)
class Tools:
    """Of one request, in the order in which they were sent."""

    offered: list[Tool] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)  # by the name that is offered
    left_out: set[str] = field(default_factory=set)  # types

    def origin(self, name: str) -> Origin:
        """Of a tool that was not sent, the name itself."""
        return self.origins.get(name) or Origin(name=name)


def offered_name(name: str, namespace: Any) -> str:
    """The flat name of a tool; `namespace` may be anything that a client sends for none."""
    if not isinstance(namespace, str) or namespace in ("", _DEFAULT_NAMESPACE):
        return name
    if namespace.endswith("__") or name.startswith("__"):
        return namespace + name
    return f"{namespace}__{name}"


def read_tools(value: Any) -> Tools:
    """Raises RequestInvalid, also for two tools that would have one name."""
    found = Tools()
    for sent, where in _objects(value, "tools"):
        if sent.get("type") != "namespace":
            _add(found, sent, None, where)
            continue
        if not isinstance(namespace := sent.get("name"), str):
            raise RequestInvalid(f"{where}.name: send the namespace's name, a string.", param=where)
        before = len(found.offered)
        for inner, at in _objects(sent.get("tools"), f"{where}.tools"):
            _add(found, inner, namespace, at)
        _introduce(found.offered[before:], namespace, sent.get("description"))
    return found


def read_choice(value: Any, sent: Tools, *, parallel: bool) -> ToolChoice:
    """Raises RequestInvalid, also for a name that no tool has."""
    mode, names = _choice(value, sent)
    if mode == "required" and not sent.offered and sent.left_out:
        mode = "auto"  # what was to be called was left out: text is what can be had
    choice = ToolChoice(mode=mode, names=names, parallel=parallel)
    return tools.named(choice, sent.offered, "tool_choice")


def _add(found: Tools, sent: Mapping[str, Any], namespace: str | None, where: str) -> None:
    kind = sent.get("type", "function")
    if kind not in _CALLABLE:
        found.left_out.add(str(kind))
        return
    # Chat's shape, with the function one level deeper, is a common slip.
    inner = sent.get("function")
    body = inner if isinstance(inner, Mapping) else sent
    is_custom = kind == "custom"
    parameters = _CUSTOM_PARAMETERS if is_custom else body.get("parameters")
    description = _custom_description(body, where) if is_custom else body.get("description")
    tool = tools.function_tool(body.get("name"), description, parameters, where)
    origin = Origin(name=tool["function"]["name"], namespace=namespace, is_custom=is_custom)
    name = offered_name(origin.name, namespace)
    if found.origins.setdefault(name, origin) != origin:
        raise RequestInvalid(f"{where}.name: there are two tools {name!r}.", param=where)
    tool["function"]["name"] = name
    found.offered.append(tool)


def _introduce(group: list[Tool], namespace: str, description: Any) -> None:
    """What is said of a namespace stands with its first tool: there is no other place for it."""
    if not group or not isinstance(description, str) or not description:
        return
    function = group[0]["function"]
    about = f"Of all tools in {namespace}: {description}"
    function["description"] = f"{function['description']}\n\n{about}".lstrip()


def _custom_description(tool: Mapping[str, Any], where: str) -> str:
    """What the input has to look like is told to the model; nothing forces it."""
    lines = [tool["description"]] if isinstance(tool.get("description"), str) else []
    wanted = tool.get("format")
    if wanted is None:
        wanted = {}
    if not isinstance(wanted, Mapping):
        raise RequestInvalid(f"{where}.format: send an object with a type.", param=where)
    if isinstance(definition := wanted.get("definition"), str):
        syntax = wanted.get("syntax", "grammar")
        lines.append(f"The string `{CUSTOM_INPUT}` must match this {syntax}:\n{definition}")
    else:
        lines.append(f"The string `{CUSTOM_INPUT}` is free text.")
    return "\n\n".join(lines)


def _choice(value: Any, sent: Tools) -> tuple[Mode, list[str]]:
    if value is None:
        return "auto", []
    if isinstance(value, str) and value in _MODES:
        return _MODES[value], []
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind in _CALLABLE:
        return "required", [_name(value, "tool_choice")]
    if kind == "allowed_tools":
        return _allowed(value, sent)
    if str(kind) in sent.left_out:
        return "auto", []
    raise RequestInvalid(
        f"tool_choice: send one of {', '.join(_MODES)}, or an object of the type function, custom "
        "or allowed_tools.",
        param="tool_choice",
    )


def _allowed(value: Mapping[str, Any], sent: Tools) -> tuple[Mode, list[str]]:
    mode = _MODES.get(str(value.get("mode", "auto")))
    if mode is None:
        raise RequestInvalid("tool_choice.mode: send auto or required.", param="tool_choice.mode")
    names = []
    for tool, where in _objects(value.get("tools"), "tool_choice.tools"):
        if tool.get("type", "function") in _CALLABLE:
            names.append(_name(tool, where))
        elif tool["type"] == "namespace":
            group = tool.get("name")
            names += [name for name, origin in sent.origins.items() if origin.namespace == group]
    return (mode, names) if names else ("none", [])  # an empty list of names would allow all


def _name(value: Mapping[str, Any], where: str) -> str:
    inner = value.get("function")
    body = inner if isinstance(inner, Mapping) else value
    if not isinstance(name := body.get("name"), str):
        raise RequestInvalid(f"{where}.name: send a string.", param=f"{where}.name")
    return offered_name(name, value.get("namespace"))


def _objects(value: Any, where: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The objects of a list, and where they stand."""
    if value is None:
        return
    if not isinstance(value, list):
        raise RequestInvalid(f"{where}: send a list.", param=where)
    for number, entry in enumerate(value):
        at = f"{where}[{number}]"
        if not isinstance(entry, Mapping):
            raise RequestInvalid(f"{at}: send an object with a type.", param=at)
        yield entry, at
