"""Events → a message in blocks, streamed or whole.

`message_start` goes out as soon as the prompt is accepted, when only its size is known: all of it
stands under `input_tokens` there. `message_delta` at the end has what was cached apart, so the sum
of both is the same in either place. Blocks of white space alone, as models put them between
reasoning and a call, are left out. A call that is cut while it is sent ends with its block: there
is no word for what it is.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from omlxd.api.wire import sse
from omlxd.api.wire.dialect import Call
from omlxd.api.wire.errors import anthropic_error
from omlxd.api.wire.fold import Block, Fold, Reasoning
from omlxd.api.wire.fold import Call as ToolCall
from omlxd.api.wire.sealed import seal
from omlxd.errors import OmlxError
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Finished,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)

PING = sse.event("ping", b'{"type":"ping"}')
_SHOWN = seal("")  # clients throw thinking away that has no signature
_encode = msgspec.json.encode
_Kind = Literal["text", "thinking"]


class MessageRenderer:
    """One message. At most one block is open at any time, and each is opened and closed once."""

    def __init__(self, call: Call, *, max_tokens: int | None, shows_thinking: bool) -> None:
        self._call = call
        self._id = call.request_id.removeprefix("req_")
        self._max_tokens = max_tokens
        self._shows_thinking = shows_thinking
        self._index = 0  # of the block that is open, or comes next
        self._is_open = False
        self._kind: _Kind | None = None  # of the text that comes, open or not
        self._held = ""  # white space that has not become a block yet
        self._hidden: list[str] = []  # thinking that goes into the signature
        self._finished: Finished | None = None

    def event(self, event: Event) -> bytes:
        match event:
            case Delta():
                return self._text("text", event.text)
            case ReasoningDelta():
                return self._text("thinking", event.text)
            case ToolCallArguments():
                return self._delta("input_json_delta", "partial_json", event.text)
            case ToolCallBegin():
                return self._close() + self._open(_tool_use(self._id, event.call, event.name))
            case ToolCallEnd():
                return self._close()
            case Finished():
                self._finished = event
                return self._close()
            case Accepted():
                return self._start(event.prompt_tokens)
            case Completed():
                return self._end(event.usage)
        return b""

    def failure(self, error: OmlxError) -> bytes:
        return sse.event("error", anthropic_error(error, self._call.request_id))

    def result(self, fold: Fold) -> bytes:
        choice = fold.choices[0]
        content = []
        num_calls = 0
        for block in choice.blocks:
            if isinstance(block, ToolCall):
                content.append(_called(block, self._id, num_calls))
                num_calls += 1
            elif not block.text.isspace():
                content.append(self._spoken(block))
        assert choice.reason is not None, "rendered before the choice finished"
        finished = Finished(self._call.request_id, 0, choice.reason, choice.stop_sequence)
        return _encode(
            {
                **self._message(content),
                **self._stop(finished, fold.usage),
                "usage": usage_object(fold.usage),
            }
        )

    # ---------------------------------------------------------------- the message

    def _message(self, content: list[Any]) -> dict[str, Any]:
        return {
            "id": f"msg_{self._id}",
            "type": "message",
            "role": "assistant",
            "model": self._call.model.id,
            "content": content,
        }

    def _start(self, prompt_tokens: int) -> bytes:
        message = {
            **self._message([]),
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_object(Usage(prompt_tokens=prompt_tokens)),
        }
        return _event("message_start", {"message": message})

    def _end(self, usage: Usage) -> bytes:
        assert self._finished is not None, "a request is complete before its choice finished"
        body = {"delta": self._stop(self._finished, usage), "usage": usage_object(usage)}
        return _event("message_delta", body) + _event("message_stop", {})

    def _stop(self, finished: Finished, usage: Usage) -> dict[str, Any]:
        reason = self._stop_reason(finished, usage)
        return {"stop_reason": reason, "stop_sequence": finished.stop_sequence}

    def _stop_reason(self, finished: Finished, usage: Usage) -> str:
        if finished.reason == "tool_calls":
            return "tool_use"
        if finished.reason == "stop":
            return "end_turn" if finished.stop_sequence is None else "stop_sequence"
        limits = (self._max_tokens, self._call.model.max_output_tokens)
        is_asked = any(limit is not None and usage.output_tokens >= limit for limit in limits)
        if is_asked or finished.reason == "aborted":  # cut short, as if by a limit
            return "max_tokens"
        return "model_context_window_exceeded"

    # ---------------------------------------------------------------- blocks

    def _text(self, kind: _Kind, text: str) -> bytes:
        if not text:
            return b""
        frames = b""
        if self._kind != kind:
            frames = self._close()
            self._kind = kind
        if not self._is_open:
            self._held += text
            if self._held.isspace():
                return frames
            text, self._held = self._held, ""
            empty = {"type": "text", "text": ""} if kind == "text" else _thinking("", "")
            frames += self._open(empty)
        if kind == "text":
            return frames + self._delta("text_delta", "text", text)
        if self._shows_thinking:
            return frames + self._delta("thinking_delta", "thinking", text)
        self._hidden.append(text)
        return frames

    def _open(self, block: dict[str, Any]) -> bytes:
        self._is_open = True
        return _event("content_block_start", {"index": self._index, "content_block": block})

    def _delta(self, kind: str, key: str, text: str) -> bytes:
        frame = (
            b"event: content_block_delta\n"
            b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
        )
        return frame % (self._index, kind.encode(), key.encode(), _encode(text))

    def _close(self) -> bytes:
        """What is open, with what belongs to its end; and white space that led to nothing."""
        frames = b""
        if self._is_open:
            if self._kind == "thinking":
                frames = self._delta("signature_delta", "signature", self._signature())
            frames += _event("content_block_stop", {"index": self._index})
            self._index += 1
        self._is_open, self._kind, self._held = False, None, ""
        return frames

    def _signature(self) -> str:
        text, self._hidden = "".join(self._hidden), []
        return seal(text)

    def _spoken(self, block: Block) -> dict[str, Any]:
        assert not isinstance(block, ToolCall)
        if not isinstance(block, Reasoning):
            return {"type": "text", "text": block.text}
        if self._shows_thinking:
            return _thinking(block.text, _SHOWN)
        return _thinking("", seal(block.text))


class CountRenderer:
    """The size of a prompt."""

    def __init__(self, call: Call) -> None:
        self._request_id = call.request_id

    def event(self, event: Event) -> bytes:
        return b""

    def failure(self, error: OmlxError) -> bytes:
        return sse.event("error", anthropic_error(error, self._request_id))

    def result(self, fold: Fold) -> bytes:
        return _encode({"input_tokens": fold.prompt_tokens})


def usage_object(usage: Usage) -> dict[str, Any]:
    """`input_tokens` are those that were not cached: all three together are the prompt."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _event(name: str, body: dict[str, Any]) -> bytes:
    return sse.event(name, _encode({"type": name, **body}))


def _thinking(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _tool_use(request: str, number: int, name: str) -> dict[str, Any]:
    """Letters and digits only after the prefix: some clients strip everything else."""
    return {"type": "tool_use", "id": f"toolu_{request}{number:03}", "name": name, "input": {}}


def _called(call: ToolCall, request: str, number: int) -> dict[str, Any]:
    # As the model wrote it: a number read and written again may be another one.
    arguments = msgspec.Raw(call.arguments.encode() or b"{}")
    return {**_tool_use(request, number, call.name), "input": arguments}
