"""Events → chunks of a chat completion, or one object."""

from __future__ import annotations

from typing import Any

import msgspec

from omlxd.api.wire import sse
from omlxd.api.wire.dialect import Call
from omlxd.api.wire.errors import openai_error
from omlxd.api.wire.fold import Call as ToolCall
from omlxd.api.wire.fold import Choice, Fold
from omlxd.errors import OmlxError
from omlxd.ipc.messages import (
    Completed,
    Delta,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegin,
    Usage,
)

_encode = msgspec.json.encode


class ChatRenderer:
    """Chunks of one answer. The part of a chunk that never changes is encoded once."""

    def __init__(self, call: Call, *, include_usage: bool) -> None:
        self._hex = call.request_id.removeprefix("req_")
        self._identity = {
            "id": f"chatcmpl-{self._hex}",
            "created": call.created,
            "model": call.model.id,
        }
        head = _encode({"object": "chat.completion.chunk", **self._identity})[:-1]
        self._head = b"data: " + head + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._include_usage = include_usage
        self._num_opened = 0

    def event(self, event: Event) -> bytes:
        match event:
            case Delta():
                logprobs = b"null"
                if event.logprobs is not None:
                    logprobs = _encode(_logprobs(event.logprobs))
                delta = b'{"content":' + _encode(event.text) + b"}"
                return self._open(event.index) + self._chunk(event.index, delta, logprobs)
            case ReasoningDelta() if event.text:  # clients show what is empty, too
                delta = b'{"reasoning_content":' + _encode(event.text) + b"}"
                return self._open(event.index) + self._chunk(event.index, delta)
            case ToolCallBegin():
                called = self._call(event.index, event.call, event.name, "")
                return self._open(event.index) + self._called(event, called)
            case ToolCallArguments():
                return self._called(event, {"function": {"arguments": event.text}})
            case Finished():
                reason = _encode(self._reason(event.reason))
                return self._open(event.index) + self._chunk(event.index, b"{}", reason=reason)
            case Completed():
                return self._usage(event.usage) + sse.DONE
        return b""

    def failure(self, error: OmlxError) -> bytes:
        return sse.data(openai_error(error)) + sse.DONE

    def result(self, fold: Fold) -> bytes:
        choices = [
            {
                "index": index,
                "message": self._message(index, choice),
                "logprobs": None if choice.logprobs is None else _logprobs(choice.logprobs),
                "finish_reason": self._reason(choice.reason),
            }
            for index, choice in enumerate(fold.choices)
        ]
        return _encode(
            {
                "object": "chat.completion",
                **self._identity,
                "choices": choices,
                "usage": usage_object(fold.usage),
            }
        )

    def _message(self, index: int, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": choice.text,
            "refusal": None,
        }
        if choice.reasoning:
            message["reasoning_content"] = choice.reasoning
        if choice.calls:
            message["content"] = choice.text or None
            message |= self._calls(index, choice.calls)
        return message

    def _calls(self, index: int, calls: list[ToolCall]) -> dict[str, Any]:
        told = [
            self._call(index, number, call.name, call.arguments)
            for number, call in enumerate(calls)
        ]
        return {"tool_calls": told}

    def _reason(self, reason: FinishReason | None) -> str:
        return finish_reason(reason)

    def _call(self, index: int, number: int, name: str, arguments: str) -> dict[str, Any]:
        return {
            "id": f"call_{self._hex}{index}{number:03}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }

    def _called(self, event: ToolCallBegin | ToolCallArguments, piece: dict[str, Any]) -> bytes:
        return self._chunk(event.index, _encode({"tool_calls": [{"index": event.call, **piece}]}))

    def _open(self, index: int) -> bytes:
        """The role goes out with the first text, so it says nothing too early.

        Clients keep choices in a list, so those before this one have to be there.
        """
        frames = b""
        while self._num_opened <= index:
            frames += self._chunk(self._num_opened, b'{"role":"assistant","content":""}')
            self._num_opened += 1
        return frames

    def _chunk(
        self, index: int, delta: bytes, logprobs: bytes = b"null", *, reason: bytes = b"null"
    ) -> bytes:
        choice = b'{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}'
        return self._head + choice % (index, delta, logprobs, reason) + self._tail

    def _usage(self, usage: Usage) -> bytes:
        if not self._include_usage:
            return b""
        return self._head + b'],"usage":' + _encode(usage_object(usage)) + b"}\n\n"


def finish_reason(reason: FinishReason | None) -> str:
    """OpenAI's word. A choice that the engine gave up is not a success: it was cut short."""
    assert reason is not None, "rendered before the choice finished"
    return "length" if reason == "aborted" else reason


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def floor(logprob: float) -> float:
    """JSON has no -inf; OpenAI's value for "very unlikely" stands for it."""
    return max(logprob, -9999.0)


def _logprobs(tokens: list[TokenLogprob]) -> dict[str, Any]:
    content = [
        {
            "token": token.token,
            "logprob": floor(token.logprob),
            "bytes": list(token.bytes_),
            "top_logprobs": [
                {"token": text, "logprob": floor(logprob), "bytes": list(raw)}
                for text, logprob, raw in token.top
            ],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}
