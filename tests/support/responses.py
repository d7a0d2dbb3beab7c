"""Responses rendered from events, and read as the official client reads them."""

from __future__ import annotations

from typing import Any

import msgspec
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from omlxd.api.ports import ServedModel
from omlxd.api.wire.dialect import Call
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.responses_render import ResponseRenderer
from omlxd.api.wire.responses_tools import read_tools
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Event,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)

MODEL = ServedModel(id="org/tiny", kind="llm")
CALL = Call(request_id="req_ab", created=1, model=MODEL)
R = "req_ab"
USAGE = Usage(prompt_tokens=12, output_tokens=9, reasoning_tokens=4, cached_tokens=8, ram=8)
ACCEPTED = Accepted(R, 12)
COMPLETED = Completed(R, USAGE)
ECHO = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "store": False}
TOOLS = read_tools(
    [
        {"type": "function", "name": "ls"},
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]},
    ]
)


def renderer(*, seals: bool = False) -> ResponseRenderer:
    return ResponseRenderer(CALL, echo=ECHO, tools=TOOLS, seals=seals)


def frames(raw: bytes) -> list[dict[str, Any]]:
    """The events of a stream; each frame is named as its type, and they are numbered from 0."""
    bodies = []
    for number, frame in enumerate(raw.decode().split("\n\n")[:-1]):
        name, data = frame.split("\n")
        body = msgspec.json.decode(data.removeprefix("data: "))
        assert name == f"event: {body['type']}"
        assert body["sequence_number"] == number
        bodies.append(body)
    return bodies


def streamed(events: list[Event], **how: Any) -> list[dict[str, Any]]:
    rendering = renderer(**how)
    return frames(b"".join(rendering.event(event) for event in events))


def whole(events: list[Event], **how: Any) -> dict[str, Any]:
    fold = Fold(1)
    for event in events:
        fold.add(event)
    return dict(msgspec.json.decode(renderer(**how).result(fold)))


def accumulated(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """The response that the official client has at the end of a stream."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    last: Any = None
    for body in bodies:
        event: Any = construct_type(value=body, type_=ResponseStreamEvent)
        for handled in state.handle_event(event):
            last = handled
    return dict(without_parsed(last.response.to_dict()))


def without_parsed(value: Any) -> Any:
    """Less what the client adds: what it made of JSON."""
    if isinstance(value, list):
        return [without_parsed(entry) for entry in value]
    if isinstance(value, dict):
        added = ("parsed", "parsed_arguments")
        return {key: without_parsed(entry) for key, entry in value.items() if key not in added}
    return value


def call(number: int, name: str, *pieces: str) -> list[Event]:
    arguments = [ToolCallArguments(R, 0, number, piece) for piece in pieces]
    return [ToolCallBegin(R, 0, number, name), *arguments, ToolCallEnd(R, 0, number)]
