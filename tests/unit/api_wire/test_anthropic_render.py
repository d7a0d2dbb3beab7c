"""Events to a message: exact transcripts, and the official client's own accumulator."""

from __future__ import annotations

from typing import Any

import msgspec
from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.ports import ServedModel
from omlxd.api.wire.anthropic_render import MessageRenderer
from omlxd.api.wire.dialect import Call
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.sealed import seal, unseal
from omlxd.errors import ContextOverflow, EngineFailed
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from tests.support.replies import USAGE, R, whole_replies
from tests.support.sdk_folds import message as accumulated
from tests.support.sdk_folds import named_frames as frames

MODEL = ServedModel(id="org/tiny", kind="llm", max_output_tokens=50)
CALL = Call(request_id="req_ab", created=1, model=MODEL)
ACCEPTED = Accepted(R, 12)
COMPLETED = Completed(R, USAGE)


def renderer(*, max_tokens: int | None = None, shows_thinking: bool = True) -> MessageRenderer:
    return MessageRenderer(CALL, max_tokens=max_tokens, shows_thinking=shows_thinking)


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


def test_a_transcript() -> None:
    """Thinking, text and a call: every block begins, goes on and ends, once."""
    events: list[Event] = [
        ACCEPTED,
        ReasoningDelta(R, 0, "hm"),
        Delta(R, 0, "\n"),
        Delta(R, 0, "I"),
        Delta(R, 0, " look."),
        *call(0, "ls", '{"a"', ":1}"),
        Finished(R, 0, "tool_calls"),
        COMPLETED,
    ]
    start, *middle, delta, stop = streamed(events)
    assert start == {
        "type": "message_start",
        "message": {
            "id": "msg_ab",
            "type": "message",
            "role": "assistant",
            "model": "org/tiny",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 12,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 0,
                "output_tokens_details": {"thinking_tokens": 0},
            },
        },
    }
    begin, piece, end = "content_block_start", "content_block_delta", "content_block_stop"
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    tool = {"type": "tool_use", "id": "toolu_ab000", "name": "ls", "input": {}}
    arguments = "input_json_delta"
    assert middle == [
        {"type": begin, "index": 0, "content_block": thinking},
        {"type": piece, "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": piece, "index": 0, "delta": {"type": "signature_delta", "signature": seal("")}},
        {"type": end, "index": 0},
        {"type": begin, "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": piece, "index": 1, "delta": {"type": "text_delta", "text": "\nI"}},
        {"type": piece, "index": 1, "delta": {"type": "text_delta", "text": " look."}},
        {"type": end, "index": 1},
        {"type": begin, "index": 2, "content_block": tool},
        {"type": piece, "index": 2, "delta": {"type": arguments, "partial_json": '{"a"'}},
        {"type": piece, "index": 2, "delta": {"type": arguments, "partial_json": ":1}"}},
        {"type": end, "index": 2},
    ]
    assert delta == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {
            "input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 8,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
        },
    }
    assert stop == {"type": "message_stop"}


def reason_of(
    reason: FinishReason, stop: str | None = None, *, output: int = 9, max_tokens: int | None = 20
) -> tuple[str, str | None]:
    usage = Usage(prompt_tokens=1, output_tokens=output)
    events: list[Event] = [ACCEPTED, Finished(R, 0, reason, stop), Completed(R, usage)]
    message = whole(events, max_tokens=max_tokens)
    told = streamed(events, max_tokens=max_tokens)[-2]["delta"]
    assert told == {key: message[key] for key in ("stop_reason", "stop_sequence")}
    return message["stop_reason"], message["stop_sequence"]


def test_why_it_stopped() -> None:
    """A reply that ends short of every limit on replies ran into the window."""
    assert reason_of("stop") == ("end_turn", None)
    assert reason_of("stop", "END") == ("stop_sequence", "END")
    assert reason_of("tool_calls") == ("tool_use", None)
    assert reason_of("length", output=20) == ("max_tokens", None)
    assert reason_of("length", output=50, max_tokens=None) == ("max_tokens", None)
    assert reason_of("length", output=19) == ("model_context_window_exceeded", None)
    assert reason_of("aborted") == ("max_tokens", None)


def test_white_space_alone_is_no_block() -> None:
    """Between reasoning and a call it says nothing, and clients would show it."""
    events: list[Event] = [
        ACCEPTED,
        ReasoningDelta(R, 0, "\n"),
        Delta(R, 0, "\n"),
        Delta(R, 0, "\n"),
        *call(0, "ls"),
        Delta(R, 0, " "),
        Finished(R, 0, "tool_calls"),
        COMPLETED,
    ]
    (tool,) = whole(events)["content"]
    assert tool == {"type": "tool_use", "id": "toolu_ab000", "name": "ls", "input": {}}
    assert len(accumulated(streamed(events)).content) == 1


def test_a_call_that_was_cut() -> None:
    """In a stream its block ends where it was cut; whole, nobody is given half a call to run."""
    events: list[Event] = [
        ACCEPTED,
        Delta(R, 0, "I write."),
        ToolCallBegin(R, 0, 0, "write"),
        ToolCallArguments(R, 0, 0, '{"n":1,"text":"ab'),
        ToolCallEnd(R, 0, 0, cut='<call>write {"n":1,"text":"ab'),
        Finished(R, 0, "length"),
        COMPLETED,
    ]
    bodies = streamed(events, max_tokens=9)
    stop, delta, _ = bodies[-3:]
    assert stop == {"type": "content_block_stop", "index": 1}
    assert delta["delta"]["stop_reason"] == "max_tokens"
    text, tool = accumulated(bodies).model_dump()["content"]
    assert text["text"] == "I write."
    assert (tool["name"], tool["id"], tool["input"]) == ("write", "toolu_ab000", {"n": 1})
    message = whole(events, max_tokens=9)
    assert message["stop_reason"] == "max_tokens"
    (said,) = message["content"]
    assert said == {"type": "text", "text": 'I write.<call>write {"n":1,"text":"ab'}


def test_thinking_that_is_not_to_be_shown() -> None:
    """The client carries it in the signature, so that the next turn has it word for word."""
    thoughts = ["let me ", "see ☃"]
    events: list[Event] = [
        ACCEPTED,
        *(ReasoningDelta(R, 0, thought) for thought in thoughts),
        Delta(R, 0, "Yes."),
        Finished(R, 0, "stop"),
        COMPLETED,
    ]
    bodies = streamed(events, shows_thinking=False)
    assert "thinking_delta" not in str(bodies)
    hidden = whole(events, shows_thinking=False)["content"][0]
    assert hidden["thinking"] == ""
    assert unseal(hidden["signature"]) == "let me see ☃"
    assert accumulated(bodies).model_dump()["content"][0] == hidden


def test_numbers_of_a_call_are_not_read_and_written_again() -> None:
    """An argument that no float can hold arrives as the model wrote it."""
    arguments = '{"n":12345678901234567890123456789,"x":1.10}'
    fold = Fold(1)
    for event in [*call(0, "ls", arguments), Finished(R, 0, "tool_calls"), COMPLETED]:
        fold.add(event)
    assert arguments.encode() in renderer().result(fold)


def test_a_failure_ends_the_stream() -> None:
    """In the family's envelope, as an event of its own."""
    (body,) = frames(renderer().failure(EngineFailed("it broke")))
    assert body == {
        "type": "error",
        "error": {"type": "api_error", "message": "it broke"},
        "request_id": "req_ab",
    }


def test_an_overflow_says_what_claude_code_reads() -> None:
    """Both numbers stand in the words that make it compact the conversation."""
    error = ContextOverflow("too long", prompt_tokens=70, max_context=64)
    (body,) = frames(renderer().failure(error))
    assert body["error"] == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 70 tokens > 64 maximum",
    }


@given(whole_replies(["ls", "cat"]), st.booleans())
def test_a_stream_is_the_whole_message(events: list[Event], shows_thinking: bool) -> None:
    """What the official client puts together from a stream is the answer without one."""
    bodies = streamed(events, shows_thinking=shows_thinking)
    message = whole(events, shows_thinking=shows_thinking)
    assert accumulated(bodies) == Message.model_validate(message)
    blocks = [
        (body["type"].removeprefix("content_block_"), body["index"])
        for body in bodies
        if body["type"] in ("content_block_start", "content_block_stop")
    ]
    in_turn = [(step, index) for index in range(len(blocks) // 2) for step in ("start", "stop")]
    assert blocks == in_turn
