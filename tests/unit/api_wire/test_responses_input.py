"""Items of every kind that clients send become messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.ports import ServedModel
from omlxd.api.wire.responses_input import Conversation
from omlxd.api.wire.sealed import seal
from omlxd.errors import RequestInvalid

MODEL = ServedModel(id="m", kind="llm")
HI = {"role": "user", "content": "hi"}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"}


def read(sent: Any, instructions: str | None = None) -> list[dict[str, Any]]:
    return Conversation(MODEL).normalise(instructions, sent)


def call(call_id: str, name: Any = "ls", arguments: Any = '{"a": 1}', **more: Any) -> Any:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        **more,
    }


def output(call_id: str, value: Any = "done", kind: str = "function_call_output") -> Any:
    return {"type": kind, "call_id": call_id, "output": value}


def called(number: int, name: str = "ls", arguments: str = '{"a": 1}') -> Any:
    function = {"name": name, "arguments": arguments}
    return {"id": f"{number:09}", "type": "function", "function": function}


def answer(number: int, content: str = "done", name: str = "ls") -> Any:
    return {"role": "tool", "tool_call_id": f"{number:09}", "content": content, "name": name}


def test_a_string_is_what_the_user_says() -> None:
    """Also an empty one, with which Codex tries a model."""
    assert read("hi") == read([HI]) == [HI]
    assert read("") == [{"role": "user", "content": ""}]


def test_instructions_come_first() -> None:
    """As the system's; empty ones are none."""
    assert read("hi", "Be brief.") == [{"role": "system", "content": "Be brief."}, HI]
    assert read("hi", "") == read("hi", None) == [HI]


def test_messages() -> None:
    """With a type or without, content in parts or not: the same."""
    parts = [{"type": "input_text", "text": "hi"}]
    typed = {"type": "message", "id": "msg_1", "role": "user", "content": parts, "status": "x"}
    assert read([typed]) == [HI]
    assert read([{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}]) == [
        {"role": "system", "content": "a"},
        {"role": "system", "content": "b"},
    ]
    said = {"type": "output_text", "text": "a", "annotations": []}
    no = {"type": "refusal", "refusal": "no"}
    assert read([HI, {"role": "assistant", "content": [said, no]}]) == [
        HI,
        {"role": "assistant", "content": "a\nno"},
    ]


def test_what_the_model_cannot_see_leaves_a_note() -> None:
    """In its place, and it is counted."""
    conversation = Conversation(MODEL)
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,A"}
    content = [{"type": "input_text", "text": "see"}, PICTURE, file]
    (message,) = conversation.normalise(None, [{"role": "user", "content": content}])
    assert message["content"] == (
        "see\n[image omitted: m has no vision]\n[input_file omitted: m cannot read it]"
    )
    assert conversation.media.num_omitted == 2


def test_the_models_items_side_by_side_are_one_turn() -> None:
    """Reasoning, text and calls, as it wrote them; results follow as messages of their own."""
    items = [
        HI,
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I"}]},
        call("a"),
        call("b", "cat"),
        output("b", "two"),
        output("a", "one"),
        {"role": "assistant", "content": "Done."},
    ]
    assert read(items) == [
        HI,
        {
            "role": "assistant",
            "content": "I",
            "reasoning_content": "hm",
            "tool_calls": [called(1), called(2, "cat")],
        },
        answer(2, "two", "cat"),
        answer(1, "one"),
        {"role": "assistant", "content": "Done."},
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"summary": [], "encrypted_content": seal("all of it")},
        {
            "summary": [{"type": "summary_text", "text": "x"}],
            "encrypted_content": seal("all of it"),
        },
        {"content": [{"type": "reasoning_text", "text": "all of it"}], "encrypted_content": "c3R1"},
        {
            "summary": [{"type": "summary_text", "text": "x"}],
            "content": [{"type": "reasoning_text", "text": "all of it"}],
        },
        {"summary": [{"type": "summary_text", "text": "all of it"}], "content": None},
    ],
)
def test_reasoning_in_every_form(item: Any) -> None:
    """What is sealed counts before what was shown; the whole before its summary."""
    message = read([HI, {"type": "reasoning", **item}, call("a")])[1]
    assert message["reasoning_content"] == "all of it"


def test_reasoning_that_another_server_sealed_is_left_out() -> None:
    """It is no turn of its own then."""
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "c3R1Yg=="}
    assert read([HI, sealed]) == [HI]
    assert "reasoning_content" not in read([HI, sealed, call("a")])[1]


@pytest.mark.parametrize("arguments", ["", None, "{}"])
def test_calls_without_arguments_are_alike(arguments: str | None) -> None:
    """However a client writes them."""
    assert read([call("a", arguments=arguments)])[0]["tool_calls"] == [called(1, "ls", "{}")]


def test_a_call_in_a_namespace() -> None:
    """It has the name under which the tool is offered, also where the tools were dropped."""
    (message,) = read([call("a", "find", namespace="crm")])
    assert message["tool_calls"][0]["function"]["name"] == "crm__find"


def test_custom_calls() -> None:
    """They are calls with one string, as the model made them."""
    items = [
        {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": 'a "b"'},
        output("a", "ok", "custom_tool_call_output"),
    ]
    assert read(items) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [called(1, "apply_patch", '{"input":"a \\"b\\""}')],
        },
        answer(1, "ok", "apply_patch"),
    ]


def test_calls_of_a_shell() -> None:
    """What is to be done stands for the arguments; some clients answer by the item's id."""
    action = {"type": "exec", "command": ["ls"]}
    items = [
        {"type": "local_shell_call", "id": "a", "call_id": "a", "action": action, "status": "x"},
        {"type": "local_shell_call_output", "id": "a", "output": "f"},
        {"type": "shell_call", "call_id": "b", "action": {"commands": ["ls"]}},
        output("b", [{"stdout": "f", "outcome": {"type": "exit"}}], "shell_call_output"),
    ]
    assert read(items) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [called(1, "local_shell", '{"type":"exec","command":["ls"]}')],
        },
        answer(1, "f", "local_shell"),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [called(2, "shell", '{"commands":["ls"]}')],
        },
        answer(2, '{"stdout":"f","outcome":{"type":"exit"}}', "shell"),
    ]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("f", "f"),
        ("", ""),
        (None, ""),
        ([{"type": "input_text", "text": "f"}, {"type": "input_text", "text": "g"}], "f\ng"),
        ([{"type": "output_text", "text": "f"}, PICTURE], "f\n[image omitted: m has no vision]"),
        ({"type": "input_text", "text": "f"}, "f"),
    ],
)
def test_outputs(value: Any, content: str) -> None:
    """Strings and parts alike."""
    assert read([call("a"), output("a", value)])[1] == answer(1, content)


def test_an_output_whose_call_went_is_kept() -> None:
    """Under a number of its own: the conversation was compacted."""
    assert read([output("gone")]) == [
        {"role": "tool", "tool_call_id": "000000001", "content": "done"}
    ]


def test_what_only_openais_servers_did_is_left_out() -> None:
    """It is counted, and splits no turn."""
    conversation = Conversation(MODEL)
    items = [
        HI,
        {"role": "assistant", "content": "I look."},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "something_new", "zzz": 1},
        call("a"),
    ]
    messages = conversation.normalise(None, items)
    assert messages == [HI, {"role": "assistant", "content": "I look.", "tool_calls": [called(1)]}]
    assert conversation.media.num_omitted == 2


@pytest.mark.parametrize("item", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}])
def test_a_reference_is_refused_by_name(item: Any) -> None:
    """There is nothing stored that it could mean."""
    with pytest.raises(RequestInvalid, match=r"item_reference .* nothing is stored") as caught:
        read([HI, item])
    assert caught.value.param == "input[1]"


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        (None, "input"),
        (7, "input"),
        ([], "input"),
        ([{"type": "reasoning", "summary": []}], "input"),
        (["hi"], "input[0]"),
        ([{"type": 7}], "input[0].type"),
        ([{"type": "message", "content": "a"}], "input[0].role"),
        ([{"role": "robot", "content": "a"}], "input[0].role"),
        ([{"role": "user", "content": 7}], "input[0].content"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
        ([call("a", arguments={"a": 1})], "input[0].arguments"),
        ([call("a", name=None)], "input[0].name"),
        ([{"type": "custom_tool_call", "name": "c"}], "input[0].input"),
        ([{"type": "local_shell_call", "action": "ls"}], "input[0].action"),
        ([{"type": "function_call_output", "output": "a"}], "input[0].call_id"),
        ([output("a", 7)], "input[0].output"),
        ([{"type": "reasoning", "summary": 7}], "input[0].summary"),
    ],
)
def test_what_cannot_be_read(sent: Any, param: str) -> None:
    """Refused with its place."""
    with pytest.raises(RequestInvalid) as caught:
        read(sent)
    assert caught.value.param == param


ITEMS = [
    HI,
    {"role": "developer", "content": [{"type": "input_text", "text": "d"}]},
    {"role": "assistant", "content": "t"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "r"}]},
    {"type": "reasoning", "encrypted_content": seal("s")},
    call("a"),
    call("b", "find", namespace="crm"),
    output("a"),
    output("b"),
    {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "x"},
    output("c", kind="custom_tool_call_output"),
    {"type": "web_search_call"},
]


@given(st.lists(st.sampled_from(ITEMS), max_size=9), st.lists(st.sampled_from(ITEMS), max_size=5))
def test_a_longer_conversation_begins_as_the_shorter(before: list[Any], after: list[Any]) -> None:
    """Whatever it holds, and whatever ids a client gives its items."""
    shorter = [*before, HI]
    marked = [{**item, "id": f"x{n}", "status": "done"} for n, item in enumerate(shorter)]
    assert read(copy.deepcopy([*marked, *after]))[: len(read(shorter))] == read(shorter)
