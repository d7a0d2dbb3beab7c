"""Messages in blocks → in the neutral form.

A string and a list with that one text are the same, and cache marks, ids, signatures and unknown
keys never reach the prompt, so a client that changes them keeps its prefix. What a block becomes
depends on that block and on the tools alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from omlxd.api.ports import ServedModel
from omlxd.api.wire.history import Message, linked
from omlxd.api.wire.media import Content, Media, Piece, content_of, text_of
from omlxd.api.wire.sealed import unseal
from omlxd.api.wire.tools import Tool, definition
from omlxd.errors import RequestInvalid

_ROLES = ("user", "assistant", "system")
_JOIN = "\n"
# A line that differs from session to session, at the head of a system prompt that does not.
_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")
_ERRORS = ("error", "<tool_use_error>")  # so a failed result begins, if it says what it is itself

Block = Mapping[str, Any]


class Conversation:
    """The messages of one request while they are read; what it met on the way."""

    def __init__(self, model: ServedModel, hidden: Mapping[str, Tool]) -> None:
        self._hidden = hidden
        self.media = Media(model)
        self.introduced: dict[str, Tool] = {}  # hidden tools that a reference stands for

    def normalise(self, system: Any, messages: Any) -> list[Message]:
        """Raises RequestInvalid with the place of what cannot be read."""
        if not isinstance(messages, list) or not messages:
            raise RequestInvalid(
                "messages: send a list with at least one message.", param="messages"
            )
        normal = self._system(system)
        for number, message in enumerate(messages):
            normal += self._message(message, f"messages[{number}]")
        return linked(normal)

    def _system(self, system: Any) -> list[Message]:
        kept: list[Piece] = []
        for piece in self._pieces(system, "system"):
            rest = _BILLING.sub("", piece) if isinstance(piece, str) else piece
            if rest != "" or piece == "":
                kept.append(rest)
        content = content_of(kept)
        return [{"role": "system", "content": content}] if any(p != "" for p in kept) else []

    def _message(self, message: Any, where: str) -> list[Message]:
        if not isinstance(message, Mapping):
            raise RequestInvalid(f"{where}: send an object with role and content.", param=where)
        role = message.get("role")
        if role not in _ROLES:
            raise RequestInvalid(
                f"{where}.role: {role!r} is not one of {', '.join(_ROLES)}.", param=f"{where}.role"
            )
        blocks = _blocks(message.get("content"), f"{where}.content")
        if role == "assistant":
            return [self._assistant(blocks, f"{where}.content")]
        return self._said(role, blocks)

    def _said(self, role: str, blocks: Iterator[tuple[Block, str]]) -> list[Message]:
        """A user's or the system's turn; results become messages of their own, where they stood."""
        messages: list[Message] = []
        pieces: list[Piece] = []
        for block, where in blocks:
            if block["type"] != "tool_result":
                pieces += self._block(block, where)
                continue
            if pieces:
                messages.append({"role": role, "content": content_of(pieces)})
                pieces = []
            messages.append(self._result(block, where))
        if pieces or not messages:
            messages.append({"role": role, "content": content_of(pieces)})
        return messages

    def _assistant(self, blocks: Iterator[tuple[Block, str]], place: str) -> Message:
        pieces: list[Piece] = []
        thoughts, calls = [], []
        for block, where in blocks:
            kind = block["type"]
            if kind == "thinking":
                thoughts.append(_thought(block, where))
            elif kind == "tool_use":
                calls.append(_call(block, where))
            elif kind != "redacted_thinking":  # that one only its maker can read
                pieces += self._block(block, where)
        message: Message = {"role": "assistant", "content": text_of(pieces, place)}
        if reasoning := _JOIN.join(filter(None, thoughts)):
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = calls
        return message

    def _result(self, block: Block, where: str) -> Message:
        if not isinstance(call := block.get("tool_use_id"), str):
            raise RequestInvalid(f"{where}.tool_use_id: send a string.", param=where)
        content = content_of(self._pieces(block.get("content"), f"{where}.content"))
        if block.get("is_error") is True:
            content = _failed(content)
        return {"role": "tool", "tool_call_id": call, "content": content}

    def _pieces(self, content: Any, where: str) -> list[Piece]:
        return [piece for block, at in _blocks(content, where) for piece in self._block(block, at)]

    def _block(self, block: Block, where: str) -> list[Piece]:
        """A block as texts and pictures; unknown ones that have no text leave a note."""
        kind = block["type"]
        if kind == "image":
            return [self.media.picture(block, where)]
        if kind == "document":
            return self._document(block, where)
        if kind == "search_result":
            return self._titled(
                block, ("title", "source"), block.get("content"), f"{where}.content"
            )
        if kind == "tool_reference":
            return [self._reference(block, where)]
        if isinstance(text := block.get("text"), str):
            return [text]
        if kind == "text":
            raise RequestInvalid(f"{where}.text: send a string.", param=f"{where}.text")
        return [self.media.other(kind)]

    def _document(self, block: Block, where: str) -> list[Piece]:
        source = block.get("source")
        if not isinstance(source, Mapping):
            raise RequestInvalid(f"{where}.source: send an object.", param=f"{where}.source")
        if source.get("type") == "text":
            return self._titled(
                block, ("title", "context"), source.get("data"), f"{where}.source.data"
            )
        if source.get("type") == "content":
            return self._titled(
                block, ("title", "context"), source.get("content"), f"{where}.source.content"
            )
        return [self.media.document("document", where)]

    def _titled(self, block: Block, keys: tuple[str, str], content: Any, where: str) -> list[Piece]:
        heads = [block[key] for key in keys if isinstance(block.get(key), str) and block[key]]
        return [*heads, *self._pieces(content, where)]

    def _reference(self, block: Block, where: str) -> str:
        """The definition of a hidden tool; of one that is shown anyway, the name."""
        if not isinstance(name := block.get("tool_name"), str):
            raise RequestInvalid(f"{where}.tool_name: send a string.", param=where)
        if (tool := self._hidden.get(name)) is None:
            return name
        self.introduced[name] = tool
        return f"This tool can be called from now on: {definition(tool)}"


def _blocks(content: Any, where: str) -> Iterator[tuple[Block, str]]:
    """The blocks and where they stand; each has a `type`."""
    if content is None:
        return
    if isinstance(content, str):
        yield {"type": "text", "text": content}, where
        return
    if not isinstance(content, list):
        raise RequestInvalid(f"{where}: send a string or a list of blocks.", param=where)
    for number, block in enumerate(content):
        at = f"{where}[{number}]"
        if isinstance(block, str):
            yield {"type": "text", "text": block}, at
        elif isinstance(block, Mapping) and isinstance(block.get("type"), str):
            yield block, at
        else:
            raise RequestInvalid(f"{at}: send an object with a type.", param=at)


def _failed(content: Content) -> Content:
    """A result that says that it failed, unless it does so itself."""
    if isinstance(content, str):
        says_so = content.lstrip().lower().startswith(_ERRORS)
        return content if says_so else f"Error: {content}"
    first, *rest = content
    if first["type"] != "text":
        return [{"type": "text", "text": "Error:"}, *content]
    return [{"type": "text", "text": _failed(first["text"])}, *rest]


def _thought(block: Block, where: str) -> str:
    """What was thought; where the client was not shown it, it is in the signature."""
    text = block.get("thinking", "")
    if not isinstance(text, str):
        raise RequestInvalid(f"{where}.thinking: send a string.", param=f"{where}.thinking")
    return text or unseal(block.get("signature"))


def _call(block: Block, where: str) -> dict[str, Any]:
    name, arguments = block.get("name"), block.get("input")
    if not isinstance(name, str) or not name:
        raise RequestInvalid(f"{where}.name: send the tool's name, a string.", param=where)
    if not isinstance(arguments, Mapping | None):
        raise RequestInvalid(f"{where}.input: send an object.", param=f"{where}.input")
    # In the order in which the keys came: so the model wrote them.
    function = {"name": name, "arguments": msgspec.json.encode(arguments or {}).decode()}
    return {"id": str(block.get("id") or ""), "type": "function", "function": function}
