"""Chat messages: every form clients send becomes role and string content."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.ports import ServedModel
from omlxd.api.wire.openai_messages import Conversation, continues
from omlxd.errors import RequestInvalid

MODEL = ServedModel(id="org/tiny", kind="llm")
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def normal(*messages: Any) -> list[dict[str, Any]]:
    return Conversation(MODEL).normalise(list(messages))


def test_string_equals_one_text_part() -> None:
    """A client that flips between a string and a one-text list keeps its prefix."""
    parts = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    assert normal({"role": "user", "content": parts}) == normal({"role": "user", "content": "hi"})


@pytest.mark.parametrize("role", ["user", "tool", "system", "assistant"])
def test_all_text_parts_are_kept_in_order(role: str) -> None:
    """Every part counts, on every role, joined by a line break."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]
    assert normal({"role": role, "content": parts})[0]["content"] == "a\nb\nc"


def test_null_and_missing_content_are_empty() -> None:
    """An assistant turn with tool calls and null content is taken as the SDK sends it."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
    assert normal(message, {"role": "tool", "tool_call_id": "c1"}) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "000000001",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a": 1}'},
                }
            ],
        },
        {"role": "tool", "content": "", "tool_call_id": "000000001", "name": "f"},
    ]


def test_developer_is_system_and_reasoning_is_kept() -> None:
    """`developer` reads as system; an assistant's reasoning comes back under one name."""
    assert normal(
        {"role": "developer", "content": "be brief", "name": "ops", "zzz": 1},
        {"role": "assistant", "content": "ok", "reasoning": "hm"},
    ) == [
        {"role": "system", "content": "be brief", "name": "ops"},
        {"role": "assistant", "content": "ok", "reasoning_content": "hm"},
    ]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("not json", "not json"),
        ("", "{}"),
        (None, "{}"),
        ({}, "{}"),
        ("{}", "{}"),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_tool_arguments(sent: Any, kept: Any) -> None:
    """Arguments stay as they are, as text, and no arguments are always the same."""
    calls = [{"function": {"name": "f", "arguments": sent}}]
    message = normal({"role": "assistant", "tool_calls": calls})[0]
    assert message["tool_calls"][0]["function"]["arguments"] == kept


def test_a_round_in_the_old_form() -> None:
    """A result names its function, and answers the latest call of it."""
    called, asked, ended = normal(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "x"},
        {"role": "function", "name": "g", "content": "y"},
    )
    (call,) = called["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": "{}"}
    assert asked == {"role": "tool", "name": "f", "content": "x", "tool_call_id": call["id"]}
    assert ended["name"] == "g"
    assert ended["tool_call_id"] != call["id"]


def test_media_become_text_and_are_counted() -> None:
    """A model without vision is told what it cannot see, where it was."""
    conversation = Conversation(MODEL)
    parts = [{"type": "text", "text": "look:"}, PICTURE, {"type": "file", "file": {}}]
    content = conversation.normalise([{"role": "user", "content": parts}])[0]["content"]
    assert content == (
        "look:\n[image omitted: org/tiny has no vision]\n[file omitted: org/tiny cannot read it]"
    )
    assert conversation.media.num_omitted == 2


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [5]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "assistant", "tool_calls": {"a": 1}}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0]"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}],
            "messages[0].tool_calls[0]",
        ),
        ([{"role": "assistant", "function_call": "f"}], "messages[0].function_call"),
    ],
)
def test_malformed_messages_are_named(messages: Any, param: str) -> None:
    """A message that cannot be read is refused with its place in the list."""
    with pytest.raises(RequestInvalid) as refusal:
        Conversation(MODEL).normalise(messages)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "assistant", "content": "", "partial": True}, True),
        ({"role": "assistant", "content": "The answer is"}, True),
        ({"role": "assistant", "content": "done", "partial": False}, False),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, False),
        ({"role": "assistant", "function_call": {"name": "f"}}, False),
        ({"role": "user", "content": "x", "partial": True}, False),
    ],
)
def test_prefill(message: dict[str, Any], expected: bool) -> None:
    """A final assistant message is gone on with, empty or not, unless it says it is whole."""
    assert continues(message) is expected


messages = st.lists(
    st.dictionaries(
        st.sampled_from(["role", "content", "name", "tool_calls", "reasoning_content"]),
        st.sampled_from(["user", "assistant", None, 1, [], [PICTURE], {"type": "text"}, [None]]),
    )
    | st.none()
    | st.text(),
)


@given(messages)
def test_any_message_is_taken_or_refused(sent: list[Any]) -> None:
    """The only failure is RequestInvalid; what passes has string role and content."""
    try:
        taken = normal(*sent)
    except RequestInvalid:
        return
    assert all(isinstance(message["content"], str) for message in taken)
