"""Items of a response, from the blocks of a reply: open, or done."""

from __future__ import annotations

from typing import Any

import msgspec

from omlxd.api.wire.fold import Block, Reasoning
from omlxd.api.wire.fold import Call as ToolCall
from omlxd.api.wire.responses_tools import CUSTOM_INPUT, Tools
from omlxd.api.wire.sealed import seal

Item = dict[str, Any]


class Items:
    """Builds the items of one response. Number `n` of all items has the index `n`."""

    def __init__(self, request_id: str, tools: Tools, *, seals: bool) -> None:
        self._id = request_id.removeprefix("req_")
        self._tools = tools
        self._seals = seals
        self.done: list[Item] = []
        self._num_calls = 0

    def item(self, block: Block, status: str) -> Item:
        """The item that comes next, as it stands."""
        number = f"{self._id}{len(self.done):03}"
        match block:
            case ToolCall():
                return self._call(block, number, status)
            case Reasoning():
                return self._reasoning(block, number, status)
        return {
            "id": f"msg_{number}",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [] if status == "in_progress" else [text_part(block.text)],
        }

    def finish(self, block: Block, *, is_cut: bool = False) -> Item:
        """The item, with nothing to follow; of one that was cut, what was sent."""
        item = self.item(block, "incomplete" if is_cut else "completed")
        self.done.append(item)
        self._num_calls += isinstance(block, ToolCall)
        return item

    def _reasoning(self, block: Reasoning, number: str, status: str) -> Item:
        is_open = status == "in_progress"
        item: Item = {
            "id": f"rs_{number}",
            "type": "reasoning",
            "status": status,
            "summary": [] if is_open else [summary_part(block.text)],
        }
        if self._seals and not is_open:
            item["encrypted_content"] = seal(block.text)
        return item

    def _call(self, call: ToolCall, number: str, status: str) -> Item:
        origin = self._tools.origin(call.name)
        # Letters and digits only after the prefix: some clients strip everything else.
        item: Item = {
            "id": f"{'ctc' if origin.is_custom else 'fc'}_{number}",
            "type": "custom_tool_call" if origin.is_custom else "function_call",
            "status": status,
            "call_id": f"call_{self._id}{self._num_calls:03}",
            "name": origin.name,
        }
        if origin.namespace is not None:
            item["namespace"] = origin.namespace
        if origin.is_custom:
            item["input"] = custom_input(call.arguments) if status == "completed" else ""
        elif status == "completed":
            item["arguments"] = call.arguments or "{}"
        else:
            item["arguments"] = call.arguments if status == "incomplete" else ""
        return item


def custom_input(arguments: str) -> str:
    """The text inside a custom call's arguments; where a model wrote something else, all of it."""
    try:
        read = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    text = read.get(CUSTOM_INPUT) if isinstance(read, dict) else None
    return text if isinstance(text, str) else arguments


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}
