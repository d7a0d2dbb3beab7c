"""POST /v1/messages and /v1/messages/count_tokens: body → job.

Any version and beta header will do: what is in the body is what counts. Keys that only Anthropic's
own service can give a meaning (metadata, cache marks, context edits, safeguards) are let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from omlxd.api.wire import openai_params as limits
from omlxd.api.wire import structure
from omlxd.api.wire.anthropic_messages import Conversation
from omlxd.api.wire.anthropic_render import PING, CountRenderer, MessageRenderer
from omlxd.api.wire.anthropic_tools import read_choice, read_tools
from omlxd.api.wire.dialect import Call, Dialect, Job, require_generating
from omlxd.api.wire.history import continues
from omlxd.api.wire.media import Media
from omlxd.api.wire.wording import refusal
from omlxd.ipc.messages import Constraint, GenerateRequest, Sampling, Thinking

API = "messages"
COUNT_API = "count_tokens"


class ThinkingParam(Struct, frozen=True, kw_only=True):
    type: str = "disabled"
    budget_tokens: limits.OutputTokens | None = None
    display: str | None = None  # "omitted" = only the signature is sent


class OutputConfig(Struct, frozen=True, kw_only=True):
    effort: str | None = None
    format: Any = None


class MessageParams(Struct, frozen=True, kw_only=True):
    """Keys with a meaning here, beside model, system, messages, tools and tool_choice."""

    max_tokens: limits.OutputTokens | None = None  # not asked for: what is left of the window
    temperature: limits.Temperature | None = None
    top_p: limits.TopP | None = None
    top_k: limits.TopK | None = None
    stop_sequences: Annotated[list[limits.StopText], Meta(max_length=limits.MAX_STOPS)] = []
    stream: bool = False
    thinking: ThinkingParam = ThinkingParam()
    output_config: OutputConfig = OutputConfig()
    output_format: Any = None  # the old name of output_config.format


def parse(body: Mapping[str, Any], call: Call) -> Job:
    """One request with one choice. Raises RequestInvalid."""
    asked = _read(body)
    request, media = _request(body, call, asked)
    renderer = MessageRenderer(
        call,
        max_tokens=asked.max_tokens,
        shows_thinking=asked.thinking.display != "omitted",
    )
    return Job(
        requests=(request,),
        n=1,
        stream=asked.stream,
        renderer=renderer,
        media_omitted=media.num_omitted,
        pictures=tuple(media.pictures),
        keep_alive=PING,
    )


def parse_count(body: Mapping[str, Any], call: Call) -> Job:
    """The same request, to be counted only. Raises RequestInvalid."""
    request, media = _request(body, call, _read(body))
    counted = msgspec.structs.replace(request, api=COUNT_API, count_only=True)
    return Job(
        requests=(counted,),
        n=1,
        stream=False,
        renderer=CountRenderer(call),
        media_omitted=media.num_omitted,
        pictures=tuple(media.pictures),
    )


DIALECT = Dialect(name=API, parse=parse)
COUNT_DIALECT = Dialect(name=COUNT_API, parse=parse_count)


def _read(body: Mapping[str, Any]) -> MessageParams:
    """`null` is the same as absent."""
    present = {key: value for key, value in body.items() if value is not None}
    if present.get("mcp_servers"):
        raise limits.not_in_this_version("mcp_servers")
    try:
        return msgspec.convert(present, MessageParams, str_keys=True)
    except msgspec.ValidationError as error:
        raise refusal(str(error), present) from None


def _request(
    body: Mapping[str, Any], call: Call, asked: MessageParams
) -> tuple[GenerateRequest, Media]:
    """The request, and what pictures and files came with it."""
    require_generating(call.model)
    tools = read_tools(body.get("tools"))
    choice = read_choice(body.get("tool_choice"), tools)
    conversation = Conversation(call.model, tools.hidden)
    messages = conversation.normalise(body.get("system"), body.get("messages"))
    introduced = {
        name: tool
        for name, tool in tools.hidden.items()
        if name in conversation.introduced or name in choice.names
    }
    request = GenerateRequest(
        request_id=call.request_id,
        model=call.model.id,
        api=API,
        messages=messages,
        tools=tools.shown,
        deferred_tools=list(introduced.values()),
        tool_choice=choice,
        constraint=_constraint(asked),
        thinking=_thinking(asked),
        continue_final=continues(messages),
        sampling=Sampling(
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=None if asked.top_k is None else max(0, asked.top_k),
        ),
        max_tokens=asked.max_tokens,
        stop=asked.stop_sequences,
    )
    return request, conversation.media


def _constraint(asked: MessageParams) -> Constraint | None:
    if asked.output_config.format is not None:
        return structure.from_format(asked.output_config.format, "output_config.format")
    return structure.from_format(asked.output_format, "output_format")


def _thinking(asked: MessageParams) -> Thinking:
    """Not asked for is off, as it is with Anthropic; what is off has no effort."""
    wanted = asked.thinking
    if not limits.thinks(wanted.type):
        return Thinking(enabled=False)
    return Thinking(
        enabled=True, budget_tokens=wanted.budget_tokens, effort=asked.output_config.effort
    )
