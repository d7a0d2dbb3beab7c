"""What the official client, and any other, puts together from a stream of a response."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from omlxd.api.wire.responses_input import Conversation
from omlxd.errors import ContextOverflow
from omlxd.ipc.messages import Event, ToolCallBegin
from tests.support.replies import whole_replies
from tests.support.responses import (
    MODEL,
    frames,
    renderer,
    streamed,
    whole,
)
from tests.support.sdk_folds import response as accumulated

TYPES: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def test_a_failure_before_the_stream_began() -> None:
    """The official client takes no other first event than that the response was created."""
    error = ContextOverflow("too long", prompt_tokens=70, max_context=64)
    bodies = frames(renderer().failure(error))
    types = [body["type"] for body in bodies]
    assert types == ["response.created", "response.in_progress", "response.failed"]
    problem = accumulated(bodies)["error"]
    assert problem["code"] == "context_length_exceeded"
    assert "maximum context length is 64 tokens" in problem["message"]


REPLIES = whole_replies(["ls", "patch", "crm__find", "unknown"])


def put_together(bodies: list[dict[str, Any]]) -> dict[int, str]:
    """The text of every item, from its deltas alone."""
    texts: dict[int, str] = {}
    for body in bodies:
        if body["type"].endswith(".delta"):
            index = body["output_index"]
            texts[index] = texts.get(index, "") + body["delta"]
    return texts


def text_of(item: dict[str, Any]) -> str:
    if item["type"] == "message":
        return "".join(part["text"] for part in item["content"])
    if item["type"] == "reasoning":
        return "".join(part["text"] for part in item["summary"])
    return str(item.get("arguments", item.get("input")))


@given(REPLIES, st.booleans())
def test_a_stream_is_the_whole_response(events: list[Event], seals: bool) -> None:
    """What clients put together, from the last event, the items or the pieces, is the same."""
    bodies = streamed(events, seals=seals)
    response = whole(events, seals=seals)
    assert bodies[-1]["response"] == accumulated(bodies) == response
    done = [body["item"] for body in bodies if body["type"] == "response.output_item.done"]
    assert done == response["output"]
    texts = put_together(bodies)
    for index, item in enumerate(done):
        assert texts.get(index, "") == text_of(item)
    steps = [
        (body["type"].rpartition(".")[2], body["output_index"])
        for body in bodies
        if body["type"].startswith("response.output_item.")
    ]
    assert steps == [(step, index) for index in range(len(done)) for step in ("added", "done")]


@given(REPLIES)
def test_every_frame_has_the_official_shape(events: list[Event]) -> None:
    """With every key of the type that the client has for it."""
    for body in streamed(events):
        assert TYPES.validate_python(body).type == body["type"]
    Response.model_validate(whole(events))


@given(REPLIES)
def test_what_was_said_comes_back_as_it_was(events: list[Event]) -> None:
    """A client that sends the items back brings all of the turn but white space alone."""
    response = whole(events, seals=True)
    hi = {"role": "user", "content": "hi"}
    _, *turn = Conversation(MODEL).normalise(None, [hi, *response["output"]])
    texts = [item for item in response["output"] if item["type"] == "message"]
    thoughts = [item for item in response["output"] if item["type"] == "reasoning"]
    called = [event for event in events if isinstance(event, ToolCallBegin)]
    assert len(turn) == bool(response["output"])
    for message in turn:
        assert message["content"] == "\n".join(map(text_of, texts))
        assert message.get("reasoning_content", "") == "\n".join(map(text_of, thoughts))
        names = [each["function"]["name"] for each in message.get("tool_calls", [])]
        assert names == [event.name for event in called]
