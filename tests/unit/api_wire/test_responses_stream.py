"""What the official client, and any other, puts together from a stream of a response."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from omlxd.api.wire.responses_input import Conversation
from omlxd.errors import ContextOverflow
from omlxd.ipc.messages import Delta, Event, Finished, FinishReason, ReasoningDelta, ToolCallBegin
from tests.support.responses import (
    ACCEPTED,
    COMPLETED,
    MODEL,
    R,
    accumulated,
    call,
    frames,
    renderer,
    streamed,
    whole,
)

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


@st.composite
def replies(draw: st.DrawFn) -> list[Event]:
    """Any mix of reasoning, text and calls, cut anywhere."""
    events: list[Event] = [ACCEPTED]
    num_calls = 0

    def pieces(text: str) -> list[str]:
        cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=3)) | {0, len(text)})
        return [text[a:b] for a, b in itertools.pairwise(cuts)]

    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call"]), max_size=5)):
        if kind == "call":
            keys = st.sampled_from(["input", "a"])
            arguments = draw(st.dictionaries(keys, st.text(max_size=5), max_size=2))
            encoded = msgspec.json.encode(arguments).decode()
            name = draw(st.sampled_from(["ls", "patch", "crm__find", "unknown"]))
            events += call(num_calls, name, *pieces(encoded))
            num_calls += 1
            continue
        text = draw(st.text(alphabet=st.sampled_from(" \nab☃\x1f"), max_size=8))
        delta = Delta if kind == "text" else ReasoningDelta
        events += [delta(R, 0, piece) for piece in pieces(text)]
    reason: FinishReason = "tool_calls" if num_calls else draw(st.sampled_from(["stop", "length"]))
    return [*events, Finished(R, 0, reason), COMPLETED]


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


@given(replies(), st.booleans())
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


@given(replies())
def test_every_frame_has_the_official_shape(events: list[Event]) -> None:
    """With every key of the type that the client has for it."""
    for body in streamed(events):
        assert TYPES.validate_python(body).type == body["type"]
    Response.model_validate(whole(events))


@given(replies())
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
