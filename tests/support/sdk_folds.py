"""What the official clients make of the frames of a stream, as plain JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent


def chat(raw: bytes) -> dict[str, Any]:
    """The chat completion."""
    *frames, done, end = raw.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
    for frame in frames:
        chunk = msgspec.json.decode(frame.removeprefix(b"data: "))
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.current_completion_snapshot.model_dump()


def message(bodies: list[dict[str, Any]]) -> Message:
    """The message, from the bodies of its events."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for body in bodies:
        event: Any = body
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    return Message.model_validate(snapshot.model_dump())


def response(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """The response that the client has at the end, from the bodies of its events."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    last: Any = None
    for body in bodies:
        event: Any = construct_type(value=body, type_=ResponseStreamEvent)
        for handled in state.handle_event(event):
            last = handled
    return dict(without_parsed(last.response.to_dict()))


def named_frames(raw: bytes) -> list[dict[str, Any]]:
    """The bodies of events; each frame is named as its type."""
    bodies = []
    for frame in raw.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        body = msgspec.json.decode(data.removeprefix("data: "))
        assert name == f"event: {body['type']}"
        bodies.append(body)
    return bodies


def without_parsed(value: Any) -> Any:
    """Less what a client adds: what it made of JSON."""
    if isinstance(value, list):
        return [without_parsed(entry) for entry in value]
    if isinstance(value, dict):
        added = ("parsed", "parsed_arguments")
        return {key: without_parsed(entry) for key, entry in value.items() if key not in added}
    return value
