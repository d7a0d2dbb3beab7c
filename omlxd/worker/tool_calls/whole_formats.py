"""Formats that are read once they are complete. Text that is not wholly a call never is one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from omlxd.worker.tool_calls.literals import (
    PYTHON,
    LiteralCursor,
    Notation,
    UnfinishedError,
    gemma,
)


class Call(NamedTuple):
    """`end`: where the text behind it begins."""

    name: str
    arguments: dict[str, Any]
    end: int


class Parsed(NamedTuple):
    """The calls up to where something else stands. `is_open`: the text ends inside of a call."""

    calls: list[Call]
    is_open: bool


Parser = Callable[[str], Parsed]  # of what is behind the start mark
_One = Callable[[str, int], Call | None]  # the call that begins there

_GEMMA_CALL = re.compile(r"[\s,;]*call:(?P<name>[^\s{}:]+)\s*\{")
_PYTHON_CALL = re.compile(r"[\s,\[]*(?P<name>[\w.-]+)\s*\(")
_PYTHON_END = re.compile(r"\s*,?\s*\]")
_KIMI_CALL = re.compile(r"\s*<\|open\|>call\b(?P<attributes>(?:(?!<\|sep\|>).)*)<\|sep\|>", re.S)
_KIMI_CALL_END = re.compile(r"\s*<\|close\|>call<\|sep\|>")
_KIMI_PART = re.compile(
    r"\s*<\|open\|>(?P<kind>argument|json)\b(?P<attributes>(?:(?!<\|sep\|>).)*)<\|sep\|>", re.S
)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


def _all(one: _One, text: str) -> Parsed:
    calls: list[Call] = []
    at = 0
    try:
        while (call := one(text, at)) is not None:
            calls.append(call)
            at = call.end
    except UnfinishedError:
        return Parsed(calls, is_open=True)
    except (ValueError, RecursionError):
        pass  # what stands there is no call, so it is text
    return Parsed(calls, is_open=False)


# ---------------------------------------------------------------------------- call:name{key:value}


def _gemma_call(notation: Notation, text: str, at: int) -> Call | None:
    match = _GEMMA_CALL.match(text, at)
    if match is None:
        return None
    cursor = LiteralCursor(text, match.end(), notation)
    return Call(match["name"], cursor.pairs("}", ":"), cursor.at)


# ---------------------------------------------------------------------------- [name(key=value)]


def _python_call(text: str, at: int) -> Call | None:
    match = _PYTHON_CALL.match(text, at)
    if match is None or (at == 0 and not text.lstrip().startswith("[")):
        return None
    cursor = LiteralCursor(text, match.end(), PYTHON)
    arguments = cursor.pairs(")", "=")
    end = _PYTHON_END.match(text, cursor.at)
    return Call(match["name"], arguments, cursor.at if end is None else end.end())


# ---------------------------------------------------------------------------- <|open|>call …


def _kimi_call(text: str, at: int) -> Call | None:
    match = _KIMI_CALL.match(text, at)
    if match is None:
        return None
    name = _attributes(match["attributes"]).get("tool", "")
    arguments: dict[str, Any] = {}
    at = match.end()
    while (part := _KIMI_PART.match(text, at)) is not None:
        close = f"<|close|>{part['kind']}<|sep|>"
        end = text.find(close, part.end())
        if end < 0:
            raise UnfinishedError
        arguments |= _kimi_part(part, text[part.end() : end])
        at = end + len(close)
    if (closed := _KIMI_CALL_END.match(text, at)) is None:
        return None
    return Call(name, arguments, closed.end())


def _kimi_part(part: re.Match[str], value: str) -> dict[str, Any]:
    """One argument, or all of them as an object. ValueError if it is neither."""
    attributes = _attributes(part["attributes"])
    if part["kind"] == "json":
        arguments = json.loads(value)
        if not isinstance(arguments, dict):
            raise ValueError(f"{value!r} is no object")
        return arguments
    if "key" not in attributes:
        raise ValueError("an argument without a key")
    return {attributes["key"]: _kimi_value(value, attributes.get("type", "string"))}


def _kimi_value(value: str, named: str) -> Any:
    if named == "string":
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _attributes(text: str) -> dict[str, str]:
    return {
        key: value.replace("&quot;", '"').replace("&amp;", "&")
        for key, value in _ATTRIBUTE.findall(text)
    }


WHOLE: dict[str, Parser] = {
    "function_gemma": partial(_all, partial(_gemma_call, gemma("<escape>"))),
    "gemma4": partial(_all, partial(_gemma_call, gemma('<|"|>'))),
    "kimi_k3": partial(_all, _kimi_call),
    "pythonic": partial(_all, _python_call),
}
