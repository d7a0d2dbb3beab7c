"""Responses rendered from events."""

from __future__ import annotations

from typing import Any

import msgspec

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
)
from tests.support.replies import USAGE, R
from tests.support.sdk_folds import named_frames

MODEL = ServedModel(id="org/tiny", kind="llm")
CALL = Call(request_id="req_ab", created=1, model=MODEL)
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
    """The events of a stream, which are numbered from 0."""
    bodies = named_frames(raw)
    assert [body["sequence_number"] for body in bodies] == [*range(len(bodies))]
    return bodies


def streamed(events: list[Event], **how: Any) -> list[dict[str, Any]]:
    rendering = renderer(**how)
    return frames(b"".join(rendering.event(event) for event in events))


def whole(events: list[Event], **how: Any) -> dict[str, Any]:
    fold = Fold(1)
    for event in events:
        fold.add(event)
    return dict(msgspec.json.decode(renderer(**how).result(fold)))


def call(number: int, name: str, *pieces: str) -> list[Event]:
    arguments = [ToolCallArguments(R, 0, number, piece) for piece in pieces]
    return [ToolCallBegin(R, 0, number, name), *arguments, ToolCallEnd(R, 0, number)]
