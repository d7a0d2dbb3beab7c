"""Arguments that a format writes as bare text, typed by the tool's JSON schema.

The schema decides, never the look of the text; what has no type is a string. Text that does not fit
its type stays text, so that nothing of it is lost.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

Types = frozenset[str]

STRING: Types = frozenset({"string"})
_MOST_REFERENCES = 16  # followed one after another


def argument_types(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Types]]:
    """By tool and argument, the types it may have; of `GenerateRequest.tools`."""
    typed: dict[str, dict[str, Types]] = {}
    for tool in tools:
        function = tool["function"]
        schema = function.get("parameters")
        schema = schema if isinstance(schema, Mapping) else {}
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        typed[function["name"]] = {
            name: types_of(wanted, schema) for name, wanted in properties.items()
        }
    return typed


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Types:
    """Of a JSON schema (2020-12) inside `root`; empty if it names none."""
    if not isinstance(schema, Mapping) or depth > _MOST_REFERENCES:
        return frozenset()
    if isinstance(reference := schema.get("$ref"), str):
        return types_of(_resolve(reference, root), root, depth + 1)
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(name for name in named if isinstance(name, str))
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(parts := schema.get(key), list):
            return frozenset().union(*(types_of(part, root, depth + 1) for part in parts))
    values = schema["enum"] if isinstance(schema.get("enum"), list) else []
    return frozenset(map(_type_name, [*values, *([schema["const"]] if "const" in schema else [])]))


def convert(text: str, types: Types) -> Any:
    """The value of this type; the text itself if it has none of them."""
    bare = text.strip()
    if "null" in types and bare.lower() in ("null", "none"):
        return None
    if types & {"object", "array"}:
        value = _literal(bare)
        if _type_name(value) in types:
            return value
    if not types or "string" in types:
        return text
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    if types & {"integer", "number"}:
        return _number(bare, text, whole="number" not in types)
    return text


def fit(value: Any, types: Types) -> Any:
    """A value that a parser has typed by its look, as the schema wants it."""
    if isinstance(value, str):
        return convert(value, types)
    if types == STRING:
        return json.dumps(value, ensure_ascii=False)
    if types & {"integer"} and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _number(bare: str, text: str, *, whole: bool) -> int | float | str:
    try:
        return int(bare)
    except ValueError:
        pass
    try:
        number = float(bare)
    except ValueError:
        return text
    if not math.isfinite(number) or (whole and not number.is_integer()):
        return text
    return int(number) if whole else number


def _literal(text: str) -> Any:
    """JSON, or what a model took for it: a Python literal."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _type_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """A JSON pointer (RFC 6901) into the same document; None if it leads nowhere."""
    if not reference.startswith("#"):
        return None
    place: Any = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, Mapping) else None
    return place
