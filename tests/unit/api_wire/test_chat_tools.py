"""Tools, reasoning and structured output in chat completions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from omlxd.api.wire.dialect import Job
from omlxd.api.wire.fold import Fold
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import (
    Constraint,
    Event,
    Finished,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    ToolChoice,
)
from tests.unit.api_wire.test_openai_chat import HI, LS, job_of, request_of, run


@pytest.mark.parametrize(
    ("body", "choice"),
    [
        ({}, ToolChoice()),
        ({"tool_choice": "none"}, ToolChoice(mode="none")),
        ({"tool_choice": "required"}, ToolChoice(mode="required")),
        (
            {"tool_choice": {"type": "function", "function": {"name": "ls"}}},
            ToolChoice(mode="required", names=["ls"]),
        ),
        ({"function_call": {"name": "ls"}}, ToolChoice(mode="required", names=["ls"])),
        ({"parallel_tool_calls": False}, ToolChoice(parallel=False)),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "auto",
                        "tools": [{"type": "function", "function": {"name": "ls"}}],
                    },
                }
            },
            ToolChoice(names=["ls"]),
        ),
    ],
)
def test_tools(body: dict[str, Any], choice: ToolChoice) -> None:
    """Functions, under either name, and what is to be done with them."""
    request = request_of(tools=[LS, {"type": "web_search"}], **body)
    assert [tool["function"]["name"] for tool in request.tools] == ["ls"]
    assert request.tool_choice == choice
    old = request_of(functions=[LS["function"]], **body)
    assert old.tools == request.tools
    assert old.tool_choice == structs.replace(choice, parallel=False)  # there is room for one


@pytest.mark.parametrize(
    ("body", "constraint"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Constraint(kind="json_object")),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            Constraint(kind="json_schema", value={}, param="response_format.json_schema.schema"),
        ),
        ({"guided_json": "{}"}, Constraint(kind="json_schema", value={}, param="guided_json")),
        (
            {"extra_body": {"guided_choice": ["a", "b"]}},
            Constraint(kind="choice", value=["a", "b"], param="guided_choice"),
        ),
        (
            {"structured_outputs": {"regex": "a+"}},
            Constraint(kind="regex", value="a+", param="structured_outputs.regex"),
        ),
        (
            {"structured_outputs": {"grammar": 'start: "a"', "json": None}},
            Constraint(kind="lark", value='start: "a"', param="structured_outputs.grammar"),
        ),
        (
            {"structured_outputs": {"json_object": True}},
            Constraint(kind="json_object", param="structured_outputs.json_object"),
        ),
    ],
)
def test_structure(body: dict[str, Any], constraint: Constraint | None) -> None:
    """What the answer has to look like, and where that stood."""
    assert request_of(**body).constraint == constraint


def test_a_tool_round_in_the_history() -> None:
    """Ids are numbers by position; null content is none; results know their tool."""
    call = {"id": "x", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    request = request_of(
        messages=[
            *HI,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "a"}]},
        ]
    )
    assert request.messages == [
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [{**call, "id": "000000001"}]},
        {"role": "tool", "content": "a", "tool_call_id": "000000001", "name": "ls"},
    ]


def test_the_flat_shape_of_a_tool() -> None:
    """As the responses route has it: a common slip."""
    assert request_of(tools=[{"type": "function", **LS["function"]}]) == request_of(tools=[LS])


def test_a_call_that_nothing_here_can_be_called_for() -> None:
    """What was to be called was left out: text is what can be had."""
    request = request_of(tools=[{"type": "web_search"}], tool_choice="required")
    assert (request.tools, request.tool_choice) == ([], ToolChoice())


CALLS: list[Event] = [
    ReasoningDelta("req_ab", 0, "hm"),
    ToolCallBegin("req_ab", 0, 0, "ls"),
    ToolCallArguments("req_ab", 0, 0, '{"a"'),
    ToolCallArguments("req_ab", 0, 0, ":1}"),
    ToolCallEnd("req_ab", 0, 0),
    ToolCallBegin("req_ab", 0, 1, "ls"),
    ToolCallArguments("req_ab", 0, 1, "{}"),
    ToolCallEnd("req_ab", 0, 1),
    Finished("req_ab", 0, "tool_calls"),
]


def test_the_old_form_of_a_call() -> None:
    """Who sent `functions` is answered by a `function_call`, whole, streamed or not."""
    old = {"functions": [LS["function"]]}
    events = [*CALLS[:5], CALLS[-1]]
    deltas = streamed(job_of(stream=True, **old), events)
    function = {"name": "ls", "arguments": '{"a":1}'}
    assert deltas == [
        ({"role": "assistant", "content": ""}, None),
        ({"reasoning_content": "hm"}, None),
        ({"function_call": function}, None),
        ({}, "function_call"),
    ]
    assert whole(job_of(**old), events) == {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "reasoning_content": "hm",
            "function_call": function,
        },
        "logprobs": None,
        "finish_reason": "function_call",
    }


def test_a_call_that_was_cut() -> None:
    """Nobody is given half a call to run; a stream only has what was sent before the cut."""
    events: list[Event] = [
        ToolCallBegin("req_ab", 0, 0, "ls"),
        ToolCallArguments("req_ab", 0, 0, '{"a'),
        ToolCallEnd("req_ab", 0, 0, cut='<call>ls {"a'),
        Finished("req_ab", 0, "length"),
    ]
    told = whole(job_of(tools=[LS]), events)
    assert told["finish_reason"] == "length"
    assert told["message"] == {
        "role": "assistant",
        "content": '<call>ls {"a',
        "refusal": None,
    }
    deltas = streamed(job_of(stream=True, tools=[LS]), events)
    assert deltas[1:] == [
        ({"tool_calls": [called(0, "call_ab0000", "")]}, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]}, None),
        ({}, "length"),
    ]
    # In the old form nothing was sent yet, so it is text there too.
    old = job_of(stream=True, functions=[LS["function"]])
    assert streamed(old, events)[1:] == [({"content": '<call>ls {"a'}, None), ({}, "length")]


def streamed(job: Job, events: list[Event]) -> list[tuple[dict[str, Any], str | None]]:
    """The delta and the finish reason of every chunk."""
    lines = run(job, *events).split("\n\n")[:-1]
    choices = [msgspec.json.decode(line.removeprefix("data: "))["choices"][0] for line in lines]
    return [(choice["delta"], choice["finish_reason"]) for choice in choices]


def whole(job: Job, events: list[Event]) -> dict[str, Any]:
    """The one choice of an answer that is not streamed."""
    fold = Fold(1)
    for event in events:
        fold.add(event)
    return dict(msgspec.json.decode(job.renderer.result(fold))["choices"][0])


def test_calls_in_a_stream() -> None:
    """Id and name once, an index of its own for each call, arguments in pieces."""
    deltas = streamed(job_of(stream=True, tools=[LS]), CALLS)
    assert [delta for delta, _ in deltas] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"tool_calls": [called(0, "call_ab0000", "")]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
        {"tool_calls": [called(1, "call_ab0001", "")]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert [reason for _, reason in deltas if reason] == ["tool_calls"]


def called(index: int, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": "ls", "arguments": arguments}
    return {"index": index, "id": name, "type": "function", "function": function}


def test_calls_in_a_whole_answer() -> None:
    """The same calls; content is null where nothing was said."""
    told = whole(job_of(tools=[LS]), CALLS)
    assert told["finish_reason"] == "tool_calls"
    calls = [called(0, "call_ab0000", '{"a":1}'), called(1, "call_ab0001", "{}")]
    assert told["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning_content": "hm",
        "tool_calls": [{k: v for k, v in call.items() if k != "index"} for call in calls],
    }


CALLING = ["tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"]
FORMATS = ["response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice"]
EFFORTS = ["reasoning", "reasoning_effort", "thinking", "thinking_budget", "enable_thinking"]
OTHERS = ["guided_grammar", "chat_template_kwargs", "extra_body"]
OF_TOOLS = ["type", "function", "name", "description", "parameters", "allowed_tools", "mode"]
OF_FORMATS = ["json_schema", "schema", "json", "regex", "choice", "grammar", "json_object"]
OF_EFFORTS = ["effort", "max_tokens", "enabled", "budget_tokens"]
KEYS = st.sampled_from([*CALLING, *FORMATS, *EFFORTS, *OTHERS])
INNER = st.sampled_from([*CALLING, *OF_TOOLS, *OF_FORMATS, *EFFORTS, *OF_EFFORTS])
LEAVES = st.sampled_from(
    [None, True, 0, 5, "", "{}", "auto", "required", "function", "ls", "json_schema", "enabled"]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(INNER, inner, max_size=4) | st.just(LS)
    ),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_body_is_taken_or_refused(body: dict[str, Any]) -> None:
    """The only failure is RequestInvalid; what passes offers functions and nothing else."""
    try:
        request = request_of(**body)
    except RequestInvalid:
        return
    assert {tool["type"] for tool in request.tools} <= {"function"}
