"""Chat messages as clients send them → as templates read them.

A string and a list with that one text are the same message, so a client that flips between the
two keeps its prefix. Ids, cache marks and unknown keys never reach the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omlxd.api.ports import ServedModel
from omlxd.api.wire.history import linked
from omlxd.api.wire.media import Media
from omlxd.api.wire.openai_parts import Parts
from omlxd.errors import RequestInvalid

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class Conversation:
    """The messages of one request while they are normalised."""

    def __init__(self, model: ServedModel) -> None:
        self._parts = Parts(model)

    @property
    def media(self) -> Media:
        return self._parts.media

    def normalise(self, messages: Any) -> list[dict[str, Any]]:
        """`messages` of a body → role, content and what a template may want."""
        if not isinstance(messages, list) or not messages:
            raise RequestInvalid(
                "messages: send a list with at least one message.", param="messages"
            )
        return linked([self._message(m, f"messages[{i}]") for i, m in enumerate(messages)])

    def _message(self, message: Any, where: str) -> dict[str, Any]:
        if not isinstance(message, Mapping):
            raise RequestInvalid(f"{where}: send an object with role and content.", param=where)
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise RequestInvalid(
                f"{where}.role: {role!r} is not one of {', '.join(_ROLES)}.", param=f"{where}.role"
            )
        read = self._parts.text if role == "assistant" else self._parts.content
        normal: dict[str, Any] = {
            "role": _ROLES[role],
            "content": read(message.get("content"), f"{where}.content"),
        }
        if isinstance(name := message.get("name"), str):
            normal["name"] = name
        answered = message.get("tool_call_id") if role == "tool" else None
        if role == "function" and "name" in normal:
            answered = _old_id(normal["name"])
        if isinstance(answered, str):
            normal["tool_call_id"] = answered
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if role == "assistant" and isinstance(reasoning, str):
            normal["reasoning_content"] = reasoning
        if role == "assistant" and (calls := message.get("tool_calls")):
            normal["tool_calls"] = _tool_calls(calls, f"{where}.tool_calls")
        elif role == "assistant" and (function := message.get("function_call")):  # the old form
            normal["tool_calls"] = [_old_call(function, f"{where}.function_call")]
        return normal


def continues(message: Any) -> bool:
    """Whether the last message is an assistant turn to go on with.

    A final assistant message is a prefill unless it called tools or says `partial: false`.
    """
    if message.get("role") != "assistant":
        return False
    if message.get("tool_calls") or message.get("function_call"):
        return False
    return bool(message.get("partial", True))


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise RequestInvalid(f"{where}: send a list.", param=where)
    return [_tool_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    normal = {"type": "function", "function": _function(function, f"{where}.function", where)}
    return {**normal, "id": call["id"]} if isinstance(call.get("id"), str) else normal


def _old_call(function: Any, where: str) -> dict[str, Any]:
    normal = _function(function, where, where)
    return {"type": "function", "function": normal, "id": _old_id(normal["name"])}


def _old_id(name: str) -> str:
    """Calls in the old form have no ids: a result answers the latest call of its function."""
    return f"function:{name}"


def _function(function: Any, place: str, param: str) -> dict[str, str]:
    """A call without arguments is written in many ways; the prompt must not tell them apart."""
    if not isinstance(function, Mapping) or not isinstance(name := function.get("name"), str):
        raise RequestInvalid(f"{place}.name: send a string.", param=param)
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, Mapping):
        arguments = msgspec.json.encode(arguments).decode()
    if not isinstance(arguments, str):
        raise RequestInvalid(f"{place}.arguments: send JSON text.", param=param)
    return {"name": name, "arguments": arguments}
