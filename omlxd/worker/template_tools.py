"""Tools for templates: as text where a template knows none, and in a form that renders.

The same tools are always the same text, and a call that comes back as history is written as the
model wrote it, so that a conversation keeps its prefix.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Message = dict[str, Any]
Tool = Mapping[str, Any]

_TAUGHT = """You can call functions. These are known, each described by a JSON object on a line of \
its own:
<tools>
{tools}
</tools>

To call one, write a block like this, with the function's name, and its arguments as an object \
that fits its parameters. To call several, write one block after another.
<tool_call>
{{"name": "...", "arguments": {{}}}}
</tool_call>

The results are then given to you between <tool_response> and </tool_response>."""


def taught(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The conversation for a template without tools: no role `tool`, no `tool_calls`."""
    plain = list(_plain(messages))
    if not tools:
        return plain
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    text = _TAUGHT.format(tools=listed)
    if plain and plain[0]["role"] == "system":
        first = plain[0]
        return [{**first, "content": f"{first['content']}\n\n{text}".lstrip()}, *plain[1:]]
    return [{"role": "system", "content": text}, *plain]


def _plain(messages: Sequence[Message]) -> Iterator[Message]:
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(f"<tool_response>\n{message['content']}\n</tool_response>")
            continue
        if results:
            yield {"role": "user", "content": "\n".join(results)}
            results = []
        calls = message.get("tool_calls")
        if not calls:
            yield message
            continue
        said = [message["content"]] if message["content"] else []
        written = "\n".join([*said, *map(_written, calls)])
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        yield {**rest, "content": written}
    if results:
        yield {"role": "user", "content": "\n".join(results)}


def _written(call: Mapping[str, Any]) -> str:
    function = call.get("function", call)
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function.get("name"), ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


# ------------------------------------------------------------------ schemas that templates refuse


def simpler(tools: Sequence[Tool]) -> list[Tool]:
    """With all that templates take for granted: a text for every description, one type for every
    property, `properties` and `required` for every object.
    """
    return [_simple_tool(tool) for tool in tools]


def _simple_tool(tool: Tool) -> Tool:
    function = tool["function"]
    parameters = {"type": "object", **_simple(function.get("parameters"))}
    described = {**function, "description": function.get("description") or ""}
    return {**tool, "function": {**described, "parameters": _as_object(parameters)}}


def _simple(schema: Any) -> dict[str, Any]:
    """A schema with a type that is a string, and a description; parts of it alike."""
    if not isinstance(schema, Mapping):  # true and false are schemas too
        return {"type": "object", "description": "", "properties": {}, "required": []}
    plain = {
        **schema,
        "type": _one_type(schema),
        "description": str(schema.get("description") or ""),
    }
    if plain["type"] == "object":
        plain = _as_object(plain)
    if plain["type"] == "array":
        plain["items"] = _simple(schema.get("items", {"type": "string"}))
    return plain


def _as_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    return {
        **schema,
        "properties": {name: _simple(part) for name, part in properties.items()},
        "required": required if isinstance(required, list) else [],
    }


def _one_type(schema: Mapping[str, Any]) -> str:
    return _first_type(schema) or ("object" if "properties" in schema else "string")


def _first_type(schema: Mapping[str, Any]) -> str | None:
    """The first that is not null, of the schema or of what it may be instead."""
    named = schema.get("type")
    names = named if isinstance(named, list) else [named]
    for name in names:
        if isinstance(name, str) and name != "null":
            return name
    for key in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(key) or ():
            if isinstance(part, Mapping) and (found := _first_type(part)) is not None:
                return found
    return None
