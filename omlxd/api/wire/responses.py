"""POST /v1/responses: body → job.

Nothing is stored: every request brings its whole conversation, and what would need an earlier one
is refused. Keys that only OpenAI's own service can give a meaning (store, prompt_cache_key,
client_metadata, service_tier, text.verbosity) are let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from omlxd.api.wire import openai_params as params
from omlxd.api.wire import structure
from omlxd.api.wire.dialect import Call, Dialect, Job, require_generating
from omlxd.api.wire.history import continues
from omlxd.api.wire.responses_input import Conversation
from omlxd.api.wire.responses_render import ResponseRenderer
from omlxd.api.wire.responses_tools import read_choice, read_tools
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import GenerateRequest

API = "responses"
_SEALED = "reasoning.encrypted_content"  # of `include`
_LOGPROBS = "message.output_text.logprobs"
_STORED = ("previous_response_id", "conversation")  # name what is stored elsewhere


class ReasoningParam(Struct, frozen=True, kw_only=True):
    effort: str | None = None
    summary: str | None = None  # reasoning is always told, as it is


class TextParam(Struct, frozen=True, kw_only=True):
    format: Any = None


class ResponseParams(params.SharedParams, frozen=True, kw_only=True):
    instructions: str | None = None
    max_output_tokens: params.OutputTokens | None = None
    reasoning: ReasoningParam = ReasoningParam()
    text: TextParam = TextParam()
    include: list[str] = field(default_factory=list)
    parallel_tool_calls: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)


def parse(body: Mapping[str, Any], call: Call) -> Job:
    """One request with one choice. Raises RequestInvalid."""
    require_generating(call.model)
    body = params.flatten(body)
    asked = params.read(body, ResponseParams)
    _refuse(body, asked)
    tools = read_tools(body.get("tools"))
    choice = read_choice(body.get("tool_choice"), tools, parallel=asked.parallel_tool_calls)
    conversation = Conversation(call.model)
    messages = conversation.normalise(asked.instructions, body.get("input"))
    max_tokens = asked.max_tokens if asked.max_output_tokens is None else asked.max_output_tokens
    request = GenerateRequest(
        request_id=call.request_id,
        model=call.model.id,
        api=API,
        messages=messages,
        tools=tools.offered,
        tool_choice=choice,
        constraint=structure.from_format(asked.text.format, "text.format"),
        thinking=params.thinking(asked.reasoning.effort),
        continue_final=continues(messages),
        sampling=asked.sampling(),
        max_tokens=max_tokens,
        stop=asked.stops,
        ignore_eos=asked.ignore_eos,
    )
    renderer = ResponseRenderer(
        call,
        echo=_echo(body, asked, max_tokens),
        tools=tools,
        seals=_SEALED in asked.include,
    )
    return Job(
        requests=(request,),
        n=1,
        stream=asked.stream,
        renderer=renderer,
        media_omitted=conversation.media.num_omitted,
        pictures=tuple(conversation.media.pictures),
    )


DIALECT = Dialect(name=API, parse=parse)


def _refuse(body: Mapping[str, Any], asked: ResponseParams) -> None:
    named = [name for name in _STORED if body.get(name)]
    if isinstance(body.get("prompt"), Mapping):  # a string under this name means nothing here
        named.append("prompt")
    for name in named:
        raise RequestInvalid(
            f"{name}: nothing is stored here; send the whole conversation in input.", param=name
        )
    if body.get("background"):
        raise params.not_in_this_version("background")
    if body.get("truncation", "disabled") != "disabled":
        raise RequestInvalid(
            "truncation: nothing is ever cut out of a conversation here; send disabled, or leave "
            "it out, and shorten what is refused as too long.",
            param="truncation",
        )
    if asked.n != 1:
        raise params.not_in_this_version("n", "a value other than 1")
    if body.get("top_logprobs"):
        raise params.not_in_this_version("top_logprobs")
    if _LOGPROBS in asked.include:
        raise params.not_in_this_version("include", _LOGPROBS)


def _echo(body: Mapping[str, Any], asked: ResponseParams, max_tokens: int | None) -> dict[str, Any]:
    """What a response says of its request; typed clients ask for most of it."""
    return {
        "background": False,
        "instructions": asked.instructions,
        "max_output_tokens": max_tokens,
        "metadata": asked.metadata,
        "parallel_tool_calls": asked.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": {"effort": asked.reasoning.effort, "summary": asked.reasoning.summary},
        "service_tier": "default",
        "store": False,
        "temperature": asked.temperature,
        "text": {"format": asked.text.format or {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": asked.top_p,
        "truncation": "disabled",
    }
