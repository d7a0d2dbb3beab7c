"""Items of a conversation → messages in the neutral form.

The model's own items that stand side by side (reasoning, text, calls) are one turn, as they were
when it wrote them. Ids, states and unknown keys never reach the prompt; what an item becomes
depends on that item and its neighbours alone, so a longer conversation begins as a shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omlxd.api.ports import ServedModel
from omlxd.api.wire.history import Message, linked
from omlxd.api.wire.media import Media
from omlxd.api.wire.openai_parts import Parts
from omlxd.api.wire.responses_tools import CUSTOM_INPUT, offered_name
from omlxd.api.wire.sealed import unseal
from omlxd.errors import RequestInvalid

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_JOIN = "\n"
# Calls that have an object in place of arguments: the tool's name, and where the object stands.
_ACTIONS = {
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
}
_OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output"} | {f"{kind}_output" for kind in _ACTIONS}
)

Item = Mapping[str, Any]


class Conversation:
    """The items of one request while they are read."""

    def __init__(self, model: ServedModel) -> None:
        self._parts = Parts(model)
        self._messages: list[Message] = []
        self._texts: list[str] = []  # of the model's turn that is being read, as the next two
        self._thoughts: list[str] = []
        self._calls: list[dict[str, Any]] = []

    @property
    def media(self) -> Media:
        return self._parts.media

    def normalise(self, instructions: str | None, sent: Any) -> list[Message]:
        """`input` of a body is a string or a list of items. Raises RequestInvalid."""
        if instructions:
            self._messages.append({"role": "system", "content": instructions})
        if isinstance(sent, str):
            self._messages.append({"role": "user", "content": sent})
        elif isinstance(sent, list):
            for number, item in enumerate(sent):
                self._item(item, f"input[{number}]")
        else:
            raise RequestInvalid("input: send a string or a list of items.", param="input")
        self._end_turn()
        if not self._messages:
            raise RequestInvalid("input: send at least one item that has text.", param="input")
        return linked(self._messages)

    def _item(self, item: Any, where: str) -> None:
        if not isinstance(item, Mapping):
            raise RequestInvalid(f"{where}: send an object.", param=where)
        kind = item.get("type")
        if kind is None:
            kind = "message" if "role" in item else "item_reference"
        if not isinstance(kind, str):
            raise RequestInvalid(f"{where}.type: send a string.", param=f"{where}.type")
        if kind == "item_reference":
            raise RequestInvalid(
                f"{where}: item_reference needs a stored conversation, and nothing is stored here; "
                "send the item itself.",
                param=where,
            )
        if kind == "message":
            self._message(item, where)
        elif kind == "reasoning":
            self._thoughts.append(self._thought(item, where))
        elif kind == "function_call":
            self._calls.append(_call(item, _arguments(item, where), where))
        elif kind == "custom_tool_call":
            arguments = _encode({CUSTOM_INPUT: _string(item, "input", where)})
            self._calls.append(_call(item, arguments, where))
        elif kind in _ACTIONS:
            name, key = _ACTIONS[kind]
            action = item.get(key)
            if not isinstance(action, Mapping):
                raise RequestInvalid(f"{where}.{key}: send an object.", param=f"{where}.{key}")
            self._calls.append(_call({**item, "name": name}, _encode(action), where))
        elif kind in _OUTPUTS:
            self._say(self._output(item, where))
        else:  # what OpenAI's own servers did, or what is newer than this
            self._parts.omit(kind)

    def _message(self, item: Item, where: str) -> None:
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise RequestInvalid(
                f"{where}.role: {role!r} is not one of {', '.join(_ROLES)}.", param=f"{where}.role"
            )
        content, place = item.get("content"), f"{where}.content"
        if role == "assistant":
            self._texts.append(self._parts.text(content, place))
        else:
            self._say({"role": _ROLES[role], "content": self._parts.content(content, place)})

    def _thought(self, item: Item, where: str) -> str:
        """What was thought: sealed it is whole, also where the client was shown less of it."""
        return (
            unseal(item.get("encrypted_content"))
            or self._parts.text(item.get("content"), f"{where}.content")
            or self._parts.text(item.get("summary"), f"{where}.summary")
        )

    def _output(self, item: Item, where: str) -> Message:
        call = item.get("call_id") or item.get("id")
        if not isinstance(call, str):
            raise RequestInvalid(f"{where}.call_id: send a string.", param=f"{where}.call_id")
        output = item.get("output")
        if isinstance(output, Mapping):
            output = [output]
        if isinstance(output, list):  # of a shell: objects that are no parts
            output = [_encode(part) if _is_plain(part) else part for part in output]
        content = self._parts.content(output, f"{where}.output")
        return {"role": "tool", "tool_call_id": call, "content": content}

    def _say(self, message: Message) -> None:
        """A message that is not the model's own: its turn, if there was one, is over."""
        self._end_turn()
        self._messages.append(message)

    def _end_turn(self) -> None:
        thoughts = _JOIN.join(filter(None, self._thoughts))
        if self._texts or self._calls or thoughts:
            message: Message = {"role": "assistant", "content": _JOIN.join(self._texts)}
            if thoughts:
                message["reasoning_content"] = thoughts
            if self._calls:
                message["tool_calls"] = self._calls
            self._messages.append(message)
        self._texts, self._thoughts, self._calls = [], [], []


def _call(item: Item, arguments: str, where: str) -> dict[str, Any]:
    name = offered_name(_string(item, "name", where), item.get("namespace"))
    call = item.get("call_id") or item.get("id")
    function = {"name": name, "arguments": arguments}
    return {"id": str(call or ""), "type": "function", "function": function}


def _arguments(item: Item, where: str) -> str:
    """A call without arguments is written in several ways; the prompt must not tell them apart."""
    arguments = item.get("arguments") or "{}"
    if not isinstance(arguments, str):
        raise RequestInvalid(f"{where}.arguments: send JSON text.", param=f"{where}.arguments")
    return arguments


def _string(item: Item, key: str, where: str) -> str:
    if not isinstance(value := item.get(key), str):
        raise RequestInvalid(f"{where}.{key}: send a string.", param=f"{where}.{key}")
    return value


def _is_plain(part: Any) -> bool:
    return isinstance(part, Mapping) and "type" not in part


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()
