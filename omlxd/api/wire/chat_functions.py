"""Chunks of a chat completion for who sent `functions`: a call is the one `function_call`."""

from __future__ import annotations

from typing import Any

import msgspec

from omlxd.api.wire.chat_render import ChatRenderer
from omlxd.api.wire.dialect import Call
from omlxd.api.wire.fold import Call as FunctionCall
from omlxd.ipc.messages import (
    Delta,
    Event,
    FinishReason,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
)


class FunctionRenderer(ChatRenderer):
    """Sends a call when it is complete: there is one place for it, and nothing takes it back."""

    def __init__(self, call: Call, *, include_usage: bool) -> None:
        super().__init__(call, include_usage=include_usage)
        self._begun: dict[int, FunctionCall] = {}  # by choice: the latest

    def event(self, event: Event) -> bytes:
        match event:
            case ToolCallBegin():
                self._begun[event.index] = FunctionCall(event.name)
                return self._open(event.index)
            case ToolCallArguments():
                self._begun[event.index].parts.append(event.text)
                return b""
            case ToolCallEnd() if event.cut:
                return super().event(Delta(event.request_id, event.index, event.cut))
            case ToolCallEnd():
                told = self._calls(event.index, [self._begun[event.index]])
                return self._chunk(event.index, msgspec.json.encode(told))
        return super().event(event)

    def _calls(self, index: int, calls: list[FunctionCall]) -> dict[str, Any]:
        (call,) = calls  # no more were allowed
        return {"function_call": {"name": call.name, "arguments": call.arguments}}

    def _reason(self, reason: FinishReason | None) -> str:
        return "function_call" if reason == "tool_calls" else super()._reason(reason)
