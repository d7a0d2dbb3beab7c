"""Tool calls that a reply must or may consist of, in each format, as rules of a grammar.

JSON formats take the whole schema of a tool. In formats with marked arguments, strings are free up
to the mark that closes them and other values are JSON. In the rest the mark and the name are given,
and what follows is free up to the end mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omlxd.worker.output_format import OutputFormat
from omlxd.worker.tool_calls.typed import STRING, types_of

Literal = Callable[[str], str]
AsJson = Callable[..., str]
Function = Mapping[str, Any]

# Around the name, behind it, and behind the arguments. NAME stands for the name.
_JSON_CALLS = {
    "json_tools": ('<tool_call>\n{"name": "NAME", "arguments": ', "}\n</tool_call>"),
    "mistral": ("[TOOL_CALLS]NAME[ARGS]", ""),
    "kimi_k2": (
        "<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ),
    "harmony": ("<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>", ""),
}
# Before the arguments, around a value, and behind all of them. KEY stands for the argument's name.
_MARKED_CALLS = {
    "qwen3_coder": (
        "<tool_call>\n<function=NAME>\n",
        "<parameter=KEY>\n",
        "\n</parameter>",
        "\n",
        "</function>\n</tool_call>",
    ),
    "glm47": (
        "<tool_call>NAME\n",
        "<arg_key>KEY</arg_key>\n<arg_value>",
        "</arg_value>",
        "\n",
        "</tool_call>",
    ),
    "longcat": (
        "<longcat_tool_call>NAME\n",
        "<longcat_arg_key>KEY</longcat_arg_key>\n<longcat_arg_value>",
        "</longcat_arg_value>",
        "\n",
        "</longcat_tool_call>",
    ),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="NAME">\n',
        '<parameter name="KEY">',
        "</parameter>",
        "\n",
        "</invoke>\n</minimax:tool_call>",
    ),
    "minicpm5": ('<function name="NAME">', '<param name="KEY">', "</param>", "", "</function>"),
}
_MARKED_CALLS["laguna"] = _MARKED_CALLS["glm47"]
_FREE_CALLS = {
    "gemma4": ("call:NAME{", "}"),
    "function_gemma": ("call:NAME{", "}"),
    "pythonic": ("[NAME(", ")]"),
}
_WHOLE_ENVELOPES = {"kimi_k2": ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")}


def call_rules(
    form: OutputFormat,
    tools: Sequence[Mapping[str, Any]],
    literal: Literal,
    *,
    parallel: bool,
    as_json: AsJson,
) -> list[str]:
    """Rules of which `calls` is one or more calls of these tools."""
    functions = [tool["function"] for tool in tools]
    lines: list[str] = []
    for number, function in enumerate(functions):
        lines += _rules(f"call_{number}", form, function, literal, as_json)
    lines.append("call: " + " | ".join(f"call_{number}" for number in range(len(functions))))
    if form.tools == "harmony":  # the end of a call is the end of the turn
        return [*lines, f"calls: ({literal(form.dropped[0])})? call"]
    begin, end = _WHOLE_ENVELOPES.get(form.tools, ("", ""))
    between = "" if begin else '"\\n"? '
    more = f"({between}call)*" if parallel else ""
    return [*lines, f"calls: {literal(begin)} call {more} {literal(end)}"]


def free_up_to(rule: str, mark: str, literal: Literal) -> str:
    """A rule of any text and the mark that ends it."""
    if "<[" in literal(mark):  # a special token is no text, so free text ends before it
        return rf"{rule}: /(.|\n)*/ {literal(mark)}"
    escaped = re.escape(mark).replace("/", r"\/").replace("\\\n", r"\n")
    return rf"{rule}[lazy]: /(.|\n)*{escaped}/"


def _rules(
    rule: str, form: OutputFormat, function: Function, literal: Literal, as_json: AsJson
) -> list[str]:
    name = function["name"]
    if form.tools in _JSON_CALLS:
        begin, end = _JSON_CALLS[form.tools]
        quoted = json.dumps(name, ensure_ascii=False)[1:-1] if form.tools == "json_tools" else name
        arguments = as_json(_object_schema(function), lenient=True)
        return [
            f"{rule}: {literal(begin.replace('NAME', quoted))} {rule}_arguments {literal(end)}",
            f"{rule}_arguments: {arguments}",
        ]
    if form.tools in _MARKED_CALLS:
        return _marked_rules(rule, form, function, literal, as_json)
    marks = form.calls
    begin, end = _FREE_CALLS.get(form.tools, ("", ""))
    inner = "".join(f" | {literal(mark)}" for mark in marks.inner if "<[" in literal(mark))
    return [
        f"{rule}: {literal(marks.start + begin.replace('NAME', name))} {rule}_free "
        f"{literal(end + marks.end)}",
        rf"{rule}_free: (/(.|\n)/{inner})*",
    ]


def _marked_rules(
    rule: str, form: OutputFormat, function: Function, literal: Literal, as_json: AsJson
) -> list[str]:
    """Arguments in the schema's order; those that are not required may be left out."""
    begin, opening, closing, between, end = _MARKED_CALLS[form.tools]
    schema = _object_schema(function)
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    lines: list[str] = []
    parts: list[str] = []
    for number, (key, part) in enumerate(schema["properties"].items()):
        name = f"{rule}_{number}"
        parts.append(name if key in required else f"{name}?")
        opened = literal(opening.replace("KEY", key))
        if isinstance(named := _mapping(part).get("enum"), list):
            lines.append(f"{name}: {opened} ({_either(named)}) {literal(closing + between)}")
        elif "string" in (types_of(part, schema) or STRING):
            lines.append(f"{name}: {opened} {name}_text {literal(between)}")
            lines.append(free_up_to(f"{name}_text", closing, literal))
        else:
            value = as_json(_with_definitions(part, schema), lenient=True)
            lines.append(f"{name}: {opened} {name}_value {literal(closing + between)}")
            lines.append(f"{name}_value: {value}")
    opened = literal(begin.replace("NAME", function["name"]))
    return [f"{rule}: {opened} {' '.join(parts)} {literal(end)}", *lines]


def _either(values: Sequence[Any]) -> str:
    """One of these, as they are written: strings bare."""
    texts = (value if isinstance(value, str) else json.dumps(value) for value in values)
    return " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def _object_schema(function: Function) -> dict[str, Any]:
    """The parameters, certainly those of an object, without patterns: they are asked for in the
    prompt, but not every one of them can be kept to in the time that a token has.
    """
    parameters = _mapping(function.get("parameters"))
    plain = _mapping(_without_patterns(parameters))
    return {**plain, "type": "object", "properties": _mapping(plain.get("properties"))}


def _without_patterns(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_patterns(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _without_patterns(value)
        for key, value in schema.items()
        if not (key == "pattern" and isinstance(value, str))
    }


def _with_definitions(part: Any, schema: Mapping[str, Any]) -> Any:
    named = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {**named, **part} if isinstance(part, Mapping) else part


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
