"""Events → a response of items, streamed or whole.

At most one item is open at any time, and each is added and done once; the last event has all of
them again. Reasoning is told as its summary, which every client shows as reasoning; a client that
asks for it gets it sealed too. Text and reasoning of white space alone, as models put it between
reasoning and a call, are left out. A call that is cut while it is sent is an incomplete item, and
its arguments are never done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omlxd.api.wire import sse
from omlxd.api.wire.dialect import Call
from omlxd.api.wire.errors import openai_message
from omlxd.api.wire.fold import Block, Fold, Reasoning, Text
from omlxd.api.wire.fold import Call as ToolCall
from omlxd.api.wire.responses_items import Item, Items, summary_part, text_part
from omlxd.api.wire.responses_tools import Tools
from omlxd.errors import OmlxError
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)

_encode = msgspec.json.encode
_CUT = ("length", "aborted")  # a choice that the engine gave up was cut short, as by a limit


class ResponseRenderer:
    """One response. `echo` is what of the request stands in it."""

    def __init__(self, call: Call, *, echo: Mapping[str, Any], tools: Tools, seals: bool) -> None:
        self._identity = {
            "id": f"resp_{call.request_id.removeprefix('req_')}",
            "object": "response",
            "created_at": call.created,
            "model": call.model.id,
        }
        self._echo = echo
        self._items = Items(call.request_id, tools, seals=seals)
        self._sequence = 0
        self._block: Block | None = None  # that grows
        self._item_id = ""  # its item's, once it is open
        self._reason: FinishReason | None = None

    def event(self, event: Event) -> bytes:
        match event:
            case Delta():
                return self._grow(Text, event.text)
            case ReasoningDelta():
                return self._grow(Reasoning, event.text)
            case ToolCallArguments():
                return self._argue(event.text)
            case ToolCallBegin():
                return self._close() + self._open(ToolCall(event.name))
            case ToolCallEnd():
                return self._close(is_cut=bool(event.cut))
            case Finished():
                self._reason = event.reason
                return self._close(is_cut=event.reason in _CUT)
            case Accepted():
                return self._start()
            case Completed():
                return self._end(event.usage)
        return b""

    def failure(self, error: OmlxError) -> bytes:
        """The frames that end a stream; where it has not even begun, also those that begin it."""
        start = b"" if self._sequence else self._start()
        problem = {"code": error.code, "message": openai_message(error)}
        response = self._response("failed", self._items.done, error=problem)
        return start + self._frame("response.failed", response=response)

    def result(self, fold: Fold) -> bytes:
        choice = fold.choices[0]
        is_cut = choice.reason in _CUT
        last = len(choice.blocks) - 1
        for number, block in enumerate(choice.blocks):
            if isinstance(block, ToolCall):
                self._items.finish(block)
            elif not block.text.isspace():
                self._items.finish(block, is_cut=is_cut and number == last)
        return _encode(self._finished(choice.reason, fold.usage))

    # ---------------------------------------------------------------- the response

    def _response(self, status: str, output: list[Item], **more: Any) -> dict[str, Any]:
        return {
            **self._identity,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": output,
            "usage": None,
            **self._echo,
            **more,
        }

    def _finished(self, reason: FinishReason | None, usage: Usage) -> dict[str, Any]:
        assert reason is not None, "rendered before the choice finished"
        told = usage_object(usage)
        if reason in _CUT:
            details = {"reason": "max_output_tokens"}
            return self._response(
                "incomplete", self._items.done, incomplete_details=details, usage=told
            )
        return self._response("completed", self._items.done, usage=told)

    def _start(self) -> bytes:
        response = self._response("in_progress", [])
        return self._frame("response.created", response=response) + self._frame(
            "response.in_progress", response=response
        )

    def _end(self, usage: Usage) -> bytes:
        response = self._finished(self._reason, usage)
        return self._frame(f"response.{response['status']}", response=response)

    # ---------------------------------------------------------------- items

    def _grow(self, kind: type[Text], text: str) -> bytes:
        if not text:
            return b""
        frames = b""
        if type(self._block) is not kind:
            frames = self._close()
            self._block = kind()
        block = self._block
        assert isinstance(block, Text)
        block.parts.append(text)
        if not self._item_id:
            text = block.text  # with white space that was held back until here
            if text.isspace():
                return frames
            frames += self._open(block)
        if kind is Reasoning:
            return frames + self._inside(
                "reasoning_summary_text.delta", summary_index=0, delta=text
            )
        return frames + self._inside("output_text.delta", content_index=0, delta=text, logprobs=[])

    def _argue(self, text: str) -> bytes:
        assert isinstance(self._block, ToolCall), "arguments of a call that did not begin"
        self._block.parts.append(text)
        if self._items.item(self._block, "in_progress")["type"] == "custom_tool_call":
            return b""  # its input is inside the arguments, and known at their end
        return self._inside("function_call_arguments.delta", delta=text)

    def _open(self, block: Block) -> bytes:
        self._block = block
        item = self._items.item(block, "in_progress")
        self._item_id = item["id"]
        frames = self._frame("response.output_item.added", output_index=self._index, item=item)
        if isinstance(block, ToolCall):
            return frames
        if isinstance(block, Reasoning):
            part = summary_part("")
            return frames + self._inside("reasoning_summary_part.added", summary_index=0, part=part)
        return frames + self._inside("content_part.added", content_index=0, part=text_part(""))

    def _close(self, *, is_cut: bool = False) -> bytes:
        """What is open, with what belongs to its end; white space that led to nothing goes."""
        block, is_open = self._block, bool(self._item_id)
        frames = b""
        if block is not None and is_open:
            if not (is_cut and isinstance(block, ToolCall)):
                frames = self._last_words(block)
            index = self._index
            item = self._items.finish(block, is_cut=is_cut)
            frames += self._frame("response.output_item.done", output_index=index, item=item)
        self._block, self._item_id = None, ""
        return frames

    def _last_words(self, block: Block) -> bytes:
        """The events that say once more, whole, what was said in pieces."""
        if isinstance(block, ToolCall):
            return self._called(self._items.item(block, "completed"), block)
        text = block.text
        if isinstance(block, Reasoning):
            return self._inside("reasoning_summary_text.done", summary_index=0, text=text) + (
                self._inside(
                    "reasoning_summary_part.done", summary_index=0, part=summary_part(text)
                )
            )
        said = self._inside("output_text.done", content_index=0, text=text, logprobs=[])
        return said + self._inside("content_part.done", content_index=0, part=text_part(text))

    def _called(self, item: Item, call: ToolCall) -> bytes:
        if item["type"] == "function_call":
            arguments = item["arguments"]
            rest = b""
            if not call.arguments:
                rest = self._inside("function_call_arguments.delta", delta=arguments)
            return rest + self._inside(
                "function_call_arguments.done", name=item["name"], arguments=arguments
            )
        text = item["input"]
        piece = self._inside("custom_tool_call_input.delta", delta=text) if text else b""
        return piece + self._inside("custom_tool_call_input.done", input=text)

    @property
    def _index(self) -> int:
        return len(self._items.done)

    def _inside(self, name: str, /, **body: Any) -> bytes:
        """An event of the item that is open."""
        return self._frame(
            f"response.{name}", item_id=self._item_id, output_index=self._index, **body
        )

    def _frame(self, name: str, /, **body: Any) -> bytes:
        frame = sse.event(name, _encode({"type": name, "sequence_number": self._sequence, **body}))
        self._sequence += 1
        return frame


def usage_object(usage: Usage) -> dict[str, Any]:
    """`input_tokens` is all of the prompt, what was cached included."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
