"""POST /v1/chat/completions: body → job, events → chunks or one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omlxd.api.wire import openai_params as params
from omlxd.api.wire import structure
from omlxd.api.wire.chat_functions import FunctionRenderer
from omlxd.api.wire.chat_render import ChatRenderer
from omlxd.api.wire.chat_tools import is_old_form, read_choice, read_tools
from omlxd.api.wire.dialect import Call, Dialect, Job, require_generating
from omlxd.api.wire.openai_messages import Conversation, continues
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import GenerateRequest, Thinking

API = "chat"
_RESERVED_KWARGS = frozenset(
    {"messages", "conversation", "tools", "chat_template", "tokenize", "add_generation_prompt"}
    | {"continue_final_message", "return_dict", "return_tensors", "bos_token", "eos_token"}
)
_FLAGS = ("enable_thinking", "thinking")  # some clients send these as "true" and "false"


class ReasoningParam(msgspec.Struct, frozen=True, kw_only=True):
    effort: str | None = None
    max_tokens: params.Budget | None = None
    enabled: bool | None = None


class ThinkingParam(msgspec.Struct, frozen=True, kw_only=True):
    type: str | None = None
    budget_tokens: params.Budget | None = None


class ChatParams(params.SharedParams, frozen=True, kw_only=True):
    max_completion_tokens: params.OutputTokens | None = None
    logprobs: bool = False
    top_logprobs: params.TopLogprobs | None = None
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    enable_thinking: bool | str | None = None
    reasoning_effort: str | None = None
    reasoning: ReasoningParam = ReasoningParam()
    thinking: ThinkingParam = ThinkingParam()
    thinking_budget: params.Budget | None = None


def parse(body: Mapping[str, Any], call: Call) -> Job:
    """One request with up to `n` choices. Raises RequestInvalid."""
    require_generating(call.model)
    body = params.flatten(body)
    asked = params.read(body, ChatParams)
    _refuse(body)
    tools = read_tools(body)
    renderer = FunctionRenderer if is_old_form(body) else ChatRenderer
    conversation = Conversation(call.model)
    messages = conversation.normalise(body.get("messages"))
    request = GenerateRequest(
        request_id=call.request_id,
        model=call.model.id,
        api=API,
        messages=messages,
        tools=tools,
        tool_choice=read_choice(body, tools),
        constraint=structure.of_body(body),
        thinking=_thinking(asked),
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
        renderer=renderer(call, include_usage=asked.include_usage),
        media_omitted=conversation.media.num_omitted,
        pictures=tuple(conversation.media.pictures),
    )


DIALECT = Dialect(name=API, parse=parse)


def _refuse(body: Mapping[str, Any]) -> None:
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


def _thinking(asked: ChatParams) -> Thinking:
    """What is off has neither a budget nor an effort."""
    wanted = params.thinking(asked.reasoning_effort or asked.reasoning.effort)
    enabled = _thinks(asked)
    if enabled is None:
        enabled = wanted.enabled
    budgets = (asked.thinking_budget, asked.thinking.budget_tokens, asked.reasoning.max_tokens)
    budget = next((budget for budget in budgets if budget is not None), None)
    if enabled is False or budget == 0:
        return Thinking(enabled=False)
    return Thinking(enabled=enabled, budget_tokens=budget, effort=wanted.effort)


def _thinks(asked: ChatParams) -> bool | None:
    """The ways to say outright whether the model is to think; the first wins."""
    if asked.enable_thinking is not None:
        return _flag(asked.enable_thinking, "enable_thinking")
    if asked.thinking.type not in (None, "auto"):
        return params.thinks(asked.thinking.type)
    return asked.reasoning.enabled


def _template_kwargs(asked: ChatParams) -> dict[str, Any]:
    kwargs = dict(asked.chat_template_kwargs)
    for name in kwargs:
        if name in _RESERVED_KWARGS:
            raise RequestInvalid(
                f"chat_template_kwargs.{name}: the server sets this itself; leave it out.",
                param=f"chat_template_kwargs.{name}",
            )
    for name in _FLAGS:
        if (value := kwargs.pop(name, None)) is not None:
            kwargs[name] = _flag(value, f"chat_template_kwargs.{name}")
    return kwargs


def _flag(value: Any, name: str) -> bool:
    """A template would take the string "false" for true."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise RequestInvalid(f"{name}: send true or false.", param=name)
