"""omlxd.mcp.loop: runs, calls and results as one reply."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Finished,
    FinishReason,
    GenerateRequest,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    ToolChoice,
    Usage,
)
from omlxd.mcp.loop import ToolLoop
from omlxd.mcp.types import Offered, Result, Tool

OURS = Offered(name="lab__read", server="lab", tool=Tool(name="read", description="Reads."))
THEIRS = {"type": "function", "function": {"name": "theirs", "description": "", "parameters": {}}}


def request(**facts: Any) -> GenerateRequest:
    asked = {"messages": [{"role": "user", "content": "hi"}], "tools": [THEIRS], **facts}
    return GenerateRequest(request_id="req_1", model="m", **asked)


def loop_of(asked: GenerateRequest | None = None, *, max_rounds: int = 2) -> ToolLoop:
    return ToolLoop(asked or request(), [OURS], max_rounds=max_rounds)


def call(number: int, name: str, arguments: str = '{"a": 1}', cut: str = "") -> list[Event]:
    return [
        ToolCallBegin("r", 0, number, name, 3),
        ToolCallArguments("r", 0, number, arguments, 4),
        ToolCallEnd("r", 0, number, cut),
    ]


def run(loop: ToolLoop, *events: Event, reason: FinishReason = "tool_calls") -> list[Event]:
    """What the client is told of one run of the model."""
    usage = Usage(prompt_tokens=10, output_tokens=7, cached_tokens=4, ram=4, computed=6)
    ends = (Finished("r", 0, reason), Completed("r", usage, queue_ms=2.5))
    return [shown for event in (Accepted("r", 10), *events, *ends) for shown in loop.take(event)]


def answer(loop: ToolLoop, text: str = "found", *, is_error: bool = False) -> list[Event]:
    """All calls run, with one result for each."""
    told = []
    for one in loop.calls:
        told += loop.begin(one) + loop.answer(one, Result(text=text, is_error=is_error))
    return told


def notes(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def test_a_reply_without_calls_passes_as_it_is() -> None:
    """The model is offered the client's tools and ours; its text reaches the client."""
    loop = loop_of()
    assert [tool["function"]["name"] for tool in loop.request.tools] == ["theirs", "lab__read"]
    told = run(loop, Delta("r", 0, "hello"), reason="stop")
    assert [type(event) for event in told] == [Accepted, Delta, Finished, Completed]
    assert (loop.calls, loop.next_request()) == ((), None)


def test_a_call_of_ours_is_a_step_and_another_run() -> None:
    """The client sees lines of reasoning; the model is given its call and the whole result."""
    loop = loop_of()
    told = run(
        loop, ReasoningDelta("r", 0, "hm"), Delta("r", 0, "Let me see."), *call(0, OURS.name)
    )
    assert [type(event) for event in told] == [Accepted, ReasoningDelta, Delta]
    assert notes(answer(loop)) == ('\n[lab__read {"a": 1}]\n\n[lab__read gave 5 bytes]\n')
    following = loop.next_request()
    assert following is not None
    assert following.request_id == "req_1-2"
    assert following.messages is not None
    assert following.messages[1:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "000000001",
                    "type": "function",
                    "function": {"name": "lab__read", "arguments": '{"a": 1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "000000001", "name": "lab__read", "content": "found"},
    ]


def test_all_runs_are_one_reply() -> None:
    """One acceptance, one end, the usage of all runs, and every event under the client's id."""
    loop = loop_of()
    told = run(loop, *call(0, OURS.name))
    told += answer(loop)
    assert loop.next_request() is not None
    told += run(loop, Delta("r", 0, "done"), reason="stop")
    assert loop.next_request() is None
    assert {event.request_id for event in told[1:]} == {"req_1"}
    kinds = [type(event) for event in told]
    assert (kinds.count(Accepted), kinds.count(Finished), kinds.count(Completed)) == (1, 1, 1)
    assert told[-2] == Finished("req_1", 0, "stop")
    assert isinstance(told[-1], Completed)
    assert told[-1].usage == Usage(
        prompt_tokens=20, output_tokens=14, cached_tokens=8, ram=8, computed=12
    )


def test_no_token_is_told_twice_or_lost() -> None:
    """The tokens of a call that is withheld are counted with the line that stands for it."""
    loop = loop_of()
    told = run(loop, *call(0, OURS.name)) + answer(loop)
    assert sum(event.tokens for event in told if isinstance(event, ReasoningDelta)) == 7


def test_a_failure_is_told_to_the_model() -> None:
    """The model reads an error and goes on; the client sees its first words."""
    loop = loop_of()
    run(loop, *call(0, OURS.name))
    assert "[lab__read failed: no such file" in notes(
        answer(loop, "no such file " * 99, is_error=True)
    )
    following = loop.next_request()
    assert following is not None
    assert following.messages is not None
    assert following.messages[-1]["content"].startswith("Error: no such file")


def test_a_call_of_the_clients_ends_the_reply() -> None:
    """It reaches the client, numbered from 0; ours beside it is not run, and said so."""
    loop = loop_of()
    told = run(loop, *call(0, OURS.name), *call(1, "theirs"))
    begun = next(event for event in told if isinstance(event, ToolCallBegin))
    assert (begun.name, begun.call) == ("theirs", 0)
    assert "lab__read was not run: the reply ends with a call that the client" in notes(told)
    assert told[-2] == Finished("req_1", 0, "tool_calls")
    assert (loop.calls, loop.next_request()) == ((), None)


def test_a_call_that_was_cut_comes_out_as_text() -> None:
    """The broken call is text to the client, and the reply ends as the run did."""
    loop = loop_of()
    told = run(loop, *call(0, OURS.name, '{"a"', '<call>{"a"'), reason="length")
    assert Delta("req_1", 0, '<call>{"a"', 7) in told
    assert told[-2] == Finished("req_1", 0, "length")
    assert loop.next_request() is None


def test_rounds_are_bounded() -> None:
    """After the last round the model may call the client's tools only, or none."""
    loop = loop_of(max_rounds=1)
    run(loop, *call(0, OURS.name))
    answer(loop)
    last = loop.next_request()
    assert last is not None
    assert last.tool_choice == ToolChoice(names=["theirs"])
    alone = loop_of(request(tools=[]), max_rounds=1)
    run(alone, *call(0, OURS.name))
    answer(alone)
    last = alone.next_request()
    assert last is not None
    assert last.tool_choice == ToolChoice(mode="none")
    told = run(alone, *call(0, OURS.name))
    assert "was not run: the reply called tools 1 times" in notes(told)
    assert told[-2] == Finished("req_1", 0, "stop")
    assert alone.next_request() is None


def test_a_required_call_is_required_once() -> None:
    """Or no reply would ever come to its end."""
    loop = loop_of(request(tool_choice=ToolChoice(mode="required", parallel=False)))
    assert loop.request.tool_choice.mode == "required"
    run(loop, *call(0, OURS.name))
    answer(loop)
    following = loop.next_request()
    assert following is not None
    assert following.tool_choice == ToolChoice(mode="auto", parallel=False)


def test_the_limit_on_tokens_is_on_the_whole_reply() -> None:
    """Later runs have what is left, and without anything left calls are not run."""
    loop = loop_of(request(max_tokens=10))
    run(loop, *call(0, OURS.name))
    answer(loop)
    following = loop.next_request()
    assert following is not None
    assert following.max_tokens == 3
    told = run(loop_of(request(max_tokens=7)), *call(0, OURS.name))
    assert told[-2] == Finished("req_1", 0, "length")
    assert "no more tokens" in notes(told)


def test_a_reply_that_goes_on_with_a_message_stays_one_message() -> None:
    """What the client had begun for the model and what the model said are one turn."""
    begun = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well, "}]
    loop = loop_of(request(messages=begun, continue_final=True))
    run(loop, Delta("r", 0, "see:"), *call(0, OURS.name))
    answer(loop)
    following = loop.next_request()
    assert following is not None
    assert following.messages is not None
    assert [m["role"] for m in following.messages] == ["user", "assistant", "tool"]
    assert following.messages[1]["content"] == "Well, see:"
    assert following.continue_final is False


def test_ids_follow_those_of_the_conversation() -> None:
    """Two calls of one run are told apart, and from the calls before them."""
    before = {"role": "tool", "tool_call_id": "000000007", "content": "x"}
    loop = loop_of(request(messages=[before]))
    run(loop, *call(0, OURS.name), *call(1, OURS.name))
    assert [one.call_id for one in loop.calls] == ["000000008", "000000009"]


def test_notes_are_told_once_the_prompt_is_accepted() -> None:
    """A server that is off is told in the reply, after the event that every stream begins with."""
    loop = ToolLoop(request(), [], max_rounds=1, notes=["lab is off: why"])
    told = run(loop, reason="stop")
    assert isinstance(told[0], Accepted)
    assert notes(told) == "[lab is off: why]\n"


def test_two_tools_of_one_name_are_refused() -> None:
    """The client's tool cannot be told from ours."""
    clash = {"type": "function", "function": {"name": OURS.name}}
    with pytest.raises(RequestInvalid, match="a tool that omlxd runs"):
        loop_of(request(tools=[clash]))


@pytest.mark.parametrize("arguments", ["[]", "{", "1", "[" * 5000])
def test_arguments_that_are_no_object_are_an_error(arguments: str) -> None:
    """They are the model's mistake, and it is told."""
    loop = loop_of()
    run(loop, *call(0, OURS.name, arguments))
    with pytest.raises(RequestInvalid, match="the arguments are not"):
        loop.calls[0].decoded()


PIECES = st.sampled_from(["text", "thought", "ours", "theirs", "cut"])


@given(st.lists(st.lists(PIECES, max_size=5), max_size=6), st.integers(min_value=1, max_value=3))
def test_every_reply_ends_once(runs: list[list[str]], max_rounds: int) -> None:
    """Whatever the runs are made of: one end, `tool_calls` only with a call, bounded rounds."""
    loop = loop_of(max_rounds=max_rounds)
    told: list[Event] = []
    num_runs = 0
    for pieces in [*runs, []]:
        events: list[Event] = []
        for number, piece in enumerate(pieces):
            if piece == "text":
                events.append(Delta("r", 0, "x"))
            elif piece == "thought":
                events.append(ReasoningDelta("r", 0, "x"))
            else:
                name = "theirs" if piece == "theirs" else OURS.name
                events += call(number, name, cut="cut" if piece == "cut" else "")
        has_calls = bool({"ours", "theirs"} & set(pieces))
        told += run(loop, *events, reason="tool_calls" if has_calls else "stop")
        num_runs += 1
        told += answer(loop)
        if loop.next_request() is None:
            break
    assert num_runs <= max_rounds + 1
    assert [type(event) for event in told].count(Completed) == 1
    assert isinstance(told[-1], Completed)
    assert isinstance(told[-2], Finished)
    calls = [event for event in told if isinstance(event, ToolCallBegin)]
    assert (told[-2].reason == "tool_calls") == bool(calls)
    assert [event.call for event in calls] == list(range(len(calls)))
