"""POST /v1/chat/completions: body → job, events → chunks or one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omlxd.api.wire import openai_params as params
from omlxd.api.wire import sse
from omlxd.api.wire.dialect import Call, Dialect, Job, require_generating
from omlxd.api.wire.errors import openai_error
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.openai_messages import Conversation, continues
from omlxd.errors import OmlxError, RequestInvalid
from omlxd.ipc.messages import (
    Completed,
    Delta,
    Event,
    Finished,
    FinishReason,
    GenerateRequest,
    TokenLogprob,
    Usage,
)

API = "chat"
_encode = msgspec.json.encode
_RESERVED_KWARGS = frozenset(
    {"messages", "conversation", "tools", "chat_template", "tokenize", "add_generation_prompt"}
    | {"continue_final_message", "return_dict", "return_tensors", "bos_token", "eos_token"}
)
_FLAGS = ("enable_thinking", "thinking")  # some clients send these as "true" and "false"


class ChatParams(params.SharedParams, frozen=True, kw_only=True):
    max_completion_tokens: params.OutputTokens | None = None
    logprobs: bool = False
    top_logprobs: params.TopLogprobs | None = None
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    enable_thinking: bool | str | None = None
    reasoning_effort: str | None = None


def parse(body: Mapping[str, Any], call: Call) -> Job:
    """One request with up to `n` choices. Raises RequestInvalid."""
    require_generating(call.model)
    body = params.flatten(body)
    asked = params.read(body, ChatParams)
    _refuse_structure(body)
    conversation = Conversation(call.model)
    messages = conversation.normalise(body.get("messages"))
    request = GenerateRequest(
        request_id=call.request_id,
        model=call.model.id,
        api=API,
        messages=messages,
        template_kwargs=_template_kwargs(asked),
        continue_final=continues(body["messages"][-1]),
        sampling=asked.sampling(),
        max_tokens=_max_tokens(asked),
        stop=asked.stops,
        n=asked.n,
        top_logprobs=_top_logprobs(asked),
        ignore_eos=asked.ignore_eos,
    )
    return Job(
        requests=(request,),
        n=asked.n,
        stream=asked.stream,
        renderer=ChatRenderer(call, include_usage=asked.include_usage),
        media_omitted=conversation.media_omitted,
    )


DIALECT = Dialect(name=API, parse=parse)


class ChatRenderer:
    """Chunks of one answer. The part of a chunk that never changes is encoded once."""

    def __init__(self, call: Call, *, include_usage: bool) -> None:
        self._identity = {
            "id": f"chatcmpl-{call.request_id.removeprefix('req_')}",
            "created": call.created,
            "model": call.model.id,
        }
        head = _encode({"object": "chat.completion.chunk", **self._identity})[:-1]
        self._head = b"data: " + head + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._include_usage = include_usage
        self._opened: set[int] = set()

    def event(self, event: Event) -> bytes:
        if isinstance(event, Delta):
            logprobs = b"null"
            if event.logprobs is not None:
                logprobs = _encode(_logprobs(event.logprobs))
            delta = b'{"content":' + _encode(event.text) + b"}"
            return self._open(event.index) + self._chunk(event.index, delta, logprobs, b"null")
        if isinstance(event, Finished):
            reason = _encode(finish_reason(event.reason))
            return self._open(event.index) + self._chunk(event.index, b"{}", b"null", reason)
        if isinstance(event, Completed):
            return self._usage(event.usage) + sse.DONE
        return b""

    def failure(self, error: OmlxError) -> bytes:
        return sse.data(openai_error(error)) + sse.DONE

    def result(self, fold: Fold) -> bytes:
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": None if choice.logprobs is None else _logprobs(choice.logprobs),
                "finish_reason": finish_reason(choice.reason),
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

    def _open(self, index: int) -> bytes:
        """The role goes out with the choice's first text, so it says nothing too early."""
        if index in self._opened:
            return b""
        self._opened.add(index)
        return self._chunk(index, b'{"role":"assistant","content":""}', b"null", b"null")

    def _chunk(self, index: int, delta: bytes, logprobs: bytes, reason: bytes) -> bytes:
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


def _refuse_structure(body: Mapping[str, Any]) -> None:
    """Tools and schemas change what comes back, so they are refused until they are kept."""
    # "none" promises a plain answer, which is what there is; the tools stay out of the prompt.
    if body.get("tools") and body.get("tool_choice") != "none":
        raise RequestInvalid(
            "tools: tool calls are not in this version; leave tools out, "
            'or send tool_choice "none".',
            param="tools",
        )
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else wanted
    if kind not in (None, "text"):
        raise params.not_in_this_version("response_format", f"{kind!r}")
    if body.get("best_of", 1) != 1:
        raise params.not_in_this_version("best_of")
    if body.get("modalities", ["text"]) != ["text"]:
        raise params.not_in_this_version("modalities", "anything but text")


def _max_tokens(asked: ChatParams) -> int | None:
    old, new = asked.max_tokens, asked.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise RequestInvalid(
            f"max_completion_tokens: {new} contradicts max_tokens {old}; send one of the two.",
            param="max_completion_tokens",
        )
    return old if new is None else new


def _top_logprobs(asked: ChatParams) -> int | None:
    if asked.logprobs:
        return asked.top_logprobs or 0
    if asked.top_logprobs:
        raise RequestInvalid(
            "top_logprobs: needs logprobs to be true; send both or none.", param="top_logprobs"
        )
    return None


def _template_kwargs(asked: ChatParams) -> dict[str, Any]:
    kwargs: dict[str, Any] = {}
    if asked.enable_thinking is not None:
        kwargs["enable_thinking"] = asked.enable_thinking
    if asked.reasoning_effort is not None:
        kwargs["reasoning_effort"] = asked.reasoning_effort
    kwargs |= asked.chat_template_kwargs
    for name in kwargs:
        if name in _RESERVED_KWARGS:
            raise RequestInvalid(
                f"chat_template_kwargs.{name}: the server sets this itself; leave it out.",
                param=f"chat_template_kwargs.{name}",
            )
    for name in _FLAGS:
        if name in kwargs:
            kwargs[name] = _flag(kwargs[name], name)
    return kwargs


def _flag(value: Any, name: str) -> bool:
    """A template would take the string "false" for true."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise RequestInvalid(f"{name}: send true or false.", param=name)
