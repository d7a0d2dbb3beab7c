"""Events to a response: exact transcripts."""

from __future__ import annotations

from typing import Any

from omlxd.api.wire.responses_items import custom_input
from omlxd.api.wire.sealed import unseal
from omlxd.errors import EngineFailed
from omlxd.ipc.messages import (
    Delta,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    ToolCallEnd,
)
from tests.support.replies import R
from tests.support.responses import (
    ACCEPTED,
    COMPLETED,
    ECHO,
    call,
    frames,
    renderer,
    streamed,
    whole,
)
from tests.support.sdk_folds import response as accumulated

USAGE_TOLD = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 21,
}


def brief(bodies: list[dict[str, Any]]) -> list[Any]:
    """The frames between the first two and the last, without what all of them have."""
    dropped = ("type", "sequence_number")
    return [
        (
            body["type"].removeprefix("response."),
            {k: v for k, v in body.items() if k not in dropped},
        )
        for body in bodies[2:-1]
    ]


def test_a_transcript_of_reasoning_and_text() -> None:
    """Every item is added, goes on and is done, once, and so are its parts."""
    events: list[Event] = [
        ACCEPTED,
        ReasoningDelta(R, 0, "hm"),
        Delta(R, 0, "\n"),
        Delta(R, 0, "I"),
        Delta(R, 0, " see."),
        Finished(R, 0, "stop"),
        COMPLETED,
    ]
    bodies = streamed(events)
    created, in_progress, completed = bodies[0], bodies[1], bodies[-1]
    beginning = {
        "id": "resp_ab",
        "object": "response",
        "created_at": 1,
        "model": "org/tiny",
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        **ECHO,
    }
    assert (created["type"], created["response"]) == ("response.created", beginning)
    assert (in_progress["type"], in_progress["response"]) == ("response.in_progress", beginning)
    thought, said = "rs_ab000", "msg_ab001"
    in_first = {"item_id": thought, "output_index": 0}
    in_second = {"item_id": said, "output_index": 1}
    summary = [{"type": "summary_text", "text": "hm"}]
    part = {"type": "output_text", "text": "\nI see.", "annotations": [], "logprobs": []}
    reasoning = {"id": thought, "type": "reasoning"}
    message = {"id": said, "type": "message", "role": "assistant"}
    output = [
        {**reasoning, "status": "completed", "summary": summary},
        {**message, "status": "completed", "content": [part]},
    ]
    assert brief(bodies) == [
        (
            "output_item.added",
            {"output_index": 0, "item": {**reasoning, "status": "in_progress", "summary": []}},
        ),
        (
            "reasoning_summary_part.added",
            {**in_first, "summary_index": 0, "part": {**summary[0], "text": ""}},
        ),
        ("reasoning_summary_text.delta", {**in_first, "summary_index": 0, "delta": "hm"}),
        ("reasoning_summary_text.done", {**in_first, "summary_index": 0, "text": "hm"}),
        ("reasoning_summary_part.done", {**in_first, "summary_index": 0, "part": summary[0]}),
        ("output_item.done", {"output_index": 0, "item": output[0]}),
        (
            "output_item.added",
            {"output_index": 1, "item": {**message, "status": "in_progress", "content": []}},
        ),
        ("content_part.added", {**in_second, "content_index": 0, "part": {**part, "text": ""}}),
        ("output_text.delta", {**in_second, "content_index": 0, "delta": "\nI", "logprobs": []}),
        ("output_text.delta", {**in_second, "content_index": 0, "delta": " see.", "logprobs": []}),
        ("output_text.done", {**in_second, "content_index": 0, "text": "\nI see.", "logprobs": []}),
        ("content_part.done", {**in_second, "content_index": 0, "part": part}),
        ("output_item.done", {"output_index": 1, "item": output[1]}),
    ]
    assert completed["type"] == "response.completed"
    assert completed["response"] == whole(events)
    assert completed["response"] == {
        **beginning,
        "status": "completed",
        "output": output,
        "usage": USAGE_TOLD,
    }


def test_a_transcript_of_calls() -> None:
    """Each under the client's own name, and with an id of its own."""
    events: list[Event] = [
        ACCEPTED,
        *call(0, "ls", '{"a"', ":1}"),
        *call(1, "crm__find"),
        *call(2, "patch", '{"input":', '"+ \\"x\\""}'),
        Finished(R, 0, "tool_calls"),
        COMPLETED,
    ]
    ls = {"id": "fc_ab000", "type": "function_call", "call_id": "call_ab000", "name": "ls"}
    find = {
        "id": "fc_ab001",
        "type": "function_call",
        "call_id": "call_ab001",
        "name": "find",
        "namespace": "crm",
    }
    patch = {
        "id": "ctc_ab002",
        "type": "custom_tool_call",
        "call_id": "call_ab002",
        "name": "patch",
    }
    going, done = {"status": "in_progress"}, {"status": "completed"}
    output = [
        {**ls, **done, "arguments": '{"a":1}'},
        {**find, **done, "arguments": "{}"},
        {**patch, **done, "input": '+ "x"'},
    ]
    first, second, third = (
        {"item_id": item["id"], "output_index": index} for index, item in enumerate(output)
    )
    arguments, text = "function_call_arguments", "custom_tool_call_input"
    bodies = streamed(events)
    assert brief(bodies) == [
        ("output_item.added", {"output_index": 0, "item": {**ls, **going, "arguments": ""}}),
        (f"{arguments}.delta", {**first, "delta": '{"a"'}),
        (f"{arguments}.delta", {**first, "delta": ":1}"}),
        (f"{arguments}.done", {**first, "name": "ls", "arguments": '{"a":1}'}),
        ("output_item.done", {"output_index": 0, "item": output[0]}),
        ("output_item.added", {"output_index": 1, "item": {**find, **going, "arguments": ""}}),
        (f"{arguments}.delta", {**second, "delta": "{}"}),
        (f"{arguments}.done", {**second, "name": "find", "arguments": "{}"}),
        ("output_item.done", {"output_index": 1, "item": output[1]}),
        ("output_item.added", {"output_index": 2, "item": {**patch, **going, "input": ""}}),
        (f"{text}.delta", {**third, "delta": '+ "x"'}),
        (f"{text}.done", {**third, "input": '+ "x"'}),
        ("output_item.done", {"output_index": 2, "item": output[2]}),
    ]
    assert bodies[-1]["response"]["output"] == whole(events)["output"] == output


def test_what_a_custom_call_says() -> None:
    """If a model wrote something else than the one string, all that it wrote."""
    assert custom_input('{"input":"a"}') == "a"
    assert custom_input('{"input":""}') == ""
    for other in ('{"patch":"a"}', '{"input":7}', "[1]", '"a"', "{", ""):
        assert custom_input(other) == other


def ended(reason: FinishReason, *, within: bool = True) -> dict[str, Any]:
    """The last frame of a reply that ended so, `within` its last item or after a call."""
    says: list[Event] = [Delta(R, 0, "Hel")] if within else call(0, "ls", "{}")
    events: list[Event] = [ACCEPTED, Delta(R, 0, "a"), ReasoningDelta(R, 0, "b"), *says]
    events += [Finished(R, 0, reason), COMPLETED]
    last = streamed(events)[-1]
    assert last["response"] == whole(events)
    return last


def test_why_it_ended() -> None:
    """What was cut says so, and so does the item that it was cut in."""
    whole_ones: tuple[FinishReason, ...] = ("stop", "tool_calls")
    for reason in whole_ones:
        last = ended(reason)
        assert last["type"] == "response.completed"
        assert last["response"]["incomplete_details"] is None
        assert {item["status"] for item in last["response"]["output"]} == {"completed"}
    cut: tuple[FinishReason, ...] = ("length", "aborted")
    for reason in cut:
        last = ended(reason)
        assert last["type"] == "response.incomplete"
        assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
        assert last["response"]["usage"] == USAGE_TOLD
        statuses = [item["status"] for item in last["response"]["output"]]
        assert statuses == ["completed", "completed", "incomplete"]
    # A call that was delivered is whole.
    assert {item["status"] for item in ended("length", within=False)["response"]["output"]} == {
        "completed"
    }


def test_a_call_that_was_cut() -> None:
    """In a stream its item is incomplete and its arguments are never done; whole, it is text."""
    half = '{"input":"ab'
    for name, key, sent in (("ls", "arguments", half), ("patch", "input", "")):
        events: list[Event] = [
            ACCEPTED,
            *call(0, "ls", "{}"),
            *call(1, name, half)[:-1],
            ToolCallEnd(R, 0, 1, cut=f"<call>{half}"),
            Finished(R, 0, "tool_calls"),
            COMPLETED,
        ]
        bodies = streamed(events)
        first, second = bodies[-1]["response"]["output"]
        assert (first["status"], first["arguments"]) == ("completed", "{}")
        assert (second["status"], second[key]) == ("incomplete", sent)
        assert bodies[-2]["item"] == second
        done = [body["output_index"] for body in bodies if ".done" in body["type"]]
        assert done == [0, 0, 1]  # arguments and item, and an item alone
        assert accumulated(bodies) == bodies[-1]["response"]
        item, text = whole(events)["output"]
        assert item == first
        assert text["content"][0]["text"] == f"<call>{half}"


def test_white_space_alone_is_no_item() -> None:
    """Between reasoning and a call it says nothing, and clients would show it."""
    events: list[Event] = [
        ACCEPTED,
        ReasoningDelta(R, 0, "\n"),
        Delta(R, 0, "\n"),
        Delta(R, 0, "\n"),
        *call(0, "ls", "{}"),
        Delta(R, 0, " "),
        Finished(R, 0, "tool_calls"),
        COMPLETED,
    ]
    (item,) = whole(events)["output"]
    assert item["type"] == "function_call"
    assert len(accumulated(streamed(events))["output"]) == 1


def test_sealed_reasoning() -> None:
    """It comes with the item that is done, and brings back what was thought."""
    events: list[Event] = [
        ACCEPTED,
        ReasoningDelta(R, 0, "let me "),
        ReasoningDelta(R, 0, "see ☃"),
        Finished(R, 0, "stop"),
        COMPLETED,
    ]
    bodies = streamed(events, seals=True)
    assert "encrypted_content" not in bodies[2]["item"]
    (done,) = (body["item"] for body in bodies if body["type"] == "response.output_item.done")
    assert unseal(done["encrypted_content"]) == "let me see ☃"
    assert whole(events, seals=True)["output"] == bodies[-1]["response"]["output"] == [done]


def test_a_failure_ends_the_stream() -> None:
    """With what there is already; nothing comes after it."""
    rendering = renderer()
    raw = rendering.event(ACCEPTED) + rendering.event(Delta(R, 0, "a"))
    raw += rendering.event(ReasoningDelta(R, 0, "b"))
    last = frames(raw + rendering.failure(EngineFailed("it broke")))[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": "engine_failed", "message": "it broke"}
    assert [item["type"] for item in last["response"]["output"]] == ["message"]
