"""Blocks of messages in the neutral form."""

from __future__ import annotations

from typing import Any

import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.anthropic_messages import Conversation
from omlxd.api.wire.history import continues
from omlxd.api.wire.sealed import seal
from omlxd.api.wire.tools import definition, function_tool
from omlxd.errors import RequestInvalid

MODEL = ServedModel(id="m", kind="llm")
HIDDEN = function_tool("find", "Finds.", {"type": "object", "properties": {}}, "tools[0]")
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iV"}}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def read(*messages: dict[str, Any], system: Any = None) -> list[dict[str, Any]]:
    return Conversation(MODEL, {"find": HIDDEN}).normalise(system, list(messages))


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def use(id_: str, name: str = "ls", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": {}, **more}


def content_of(result: Any, **more: Any) -> str:
    """The content of one tool result as the template gets it."""
    block = {"type": "tool_result", "tool_use_id": "x", "content": result, **more}
    (message,) = read(user([block]))
    assert message["role"] == "tool"
    return str(message["content"])


def test_a_string_is_a_list_of_one_text() -> None:
    """In every role, and with or without a cache mark."""
    for role in ("user", "assistant", "system"):
        marked = [text("hi", cache_control={"type": "ephemeral"})]
        as_list = read(user("x"), {"role": role, "content": marked})
        assert as_list == read(user("x"), {"role": role, "content": "hi"})
        assert as_list[1] == {"role": role, "content": "hi"}


def test_system_comes_first_and_anywhere() -> None:
    """The top-level one leads; those between the messages stay where they stand."""
    messages = read(user("a"), {"role": "system", "content": [text("b")]}, user("c"), system="s")
    assert [(m["role"], m["content"]) for m in messages] == [
        ("system", "s"),
        ("user", "a"),
        ("system", "b"),
        ("user", "c"),
    ]


@pytest.mark.parametrize("empty", [None, "", [], [text("x-anthropic-billing-header: a=1;")]])
def test_no_system_is_no_message(empty: Any) -> None:
    """Neither is one that held the billing line alone."""
    assert read(user("a"), system=empty) == [{"role": "user", "content": "a"}]


def test_the_billing_line_is_dropped() -> None:
    """Only where it leads a block: it differs from session to session, the rest does not."""
    blocks = [text("x-anthropic-billing-header: h=1;"), text("You are."), text("Be good.")]
    assert read(user("a"), system=blocks)[0]["content"] == "You are.\nBe good."
    joined = "x-anthropic-billing-header: h=2;\n\nYou are."
    assert read(user("a"), system=joined)[0]["content"] == "You are."
    quoted = "Say x-anthropic-billing-header: h=1; twice."
    assert read(user("a"), system=quoted)[0]["content"] == quoted


def test_results_are_messages_in_their_place() -> None:
    """Text before and after them stays before and after them."""
    messages = read(
        user("go"),
        {"role": "assistant", "content": [use("x"), use("y", "cat")]},
        user(
            [
                text("first"),
                {"type": "tool_result", "tool_use_id": "y", "content": "Y"},
                {"tool_use_id": "x", "type": "tool_result", "content": [text("X"), text("Z")]},
                text("then"),
                text("more"),
            ]
        ),
    )
    assert messages[2:] == [
        {"role": "user", "content": "first"},
        {"role": "tool", "tool_call_id": "000000002", "content": "Y", "name": "cat"},
        {"role": "tool", "tool_call_id": "000000001", "content": "X\nZ", "name": "ls"},
        {"role": "user", "content": "then\nmore"},
    ]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (None, ""),
        ("", ""),
        ("plain", "plain"),
        (["a", text("b")], "a\nb"),
        ([PICTURE], "[image omitted: m has no vision]"),
        ([{"type": "document", "source": PDF}], "[document omitted: m cannot read it]"),
        ([{"type": "novel", "text": "seen"}], "seen"),
        ([{"type": "novel"}], "[novel omitted: m cannot read it]"),
        (
            [{"type": "search_result", "title": "T", "source": "S", "content": [text("c")]}],
            "T\nS\nc",
        ),
    ],
)
def test_contents_of_a_result(result: Any, content: str) -> None:
    """Whatever it holds, it becomes text."""
    assert content_of(result) == content


def test_a_failed_result_says_so() -> None:
    """Once: what says it itself is left as it is, and `false` is the same as absent."""
    assert content_of("no such file", is_error=True) == "Error: no such file"
    assert content_of("", is_error=True) == "Error: "
    for said in ("Error: gone", "error", "<tool_use_error>x</tool_use_error>"):
        assert content_of(said, is_error=True) == said
    assert content_of("fine", is_error=False) == "fine"


def test_a_reference_introduces_a_hidden_tool() -> None:
    """Its definition stands there; a tool that is shown anyway is only named."""
    conversation = Conversation(MODEL, {"find": HIDDEN})
    references = [{"type": "tool_reference", "tool_name": name} for name in ("find", "ls")]
    block = {"type": "tool_result", "tool_use_id": "x", "content": references}
    (message,) = conversation.normalise(None, [user([block])])
    assert definition(HIDDEN) in message["content"]
    assert message["content"].endswith("\nls")
    assert list(conversation.introduced) == ["find"]


def test_documents_with_text_are_read() -> None:
    """With title and context."""
    plain = {"type": "document", "title": "T", "source": {"type": "text", "data": "body"}}
    blocks = {"type": "document", "source": {"type": "content", "content": [text("a"), text("b")]}}
    assert read(user([plain, blocks]))[0]["content"] == "T\nbody\na\nb"


def test_an_assistants_blocks() -> None:
    """Text, thinking and calls are kept apart; arguments stay in the model's order of keys."""
    (message,) = read(
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c3R1Yg=="},
                {"type": "redacted_thinking", "data": "xx"},
                text("I look."),
                use("toolu_1", "cat", input={"b": 1, "a": 12345678901234567890}),
            ],
        }
    )
    assert message == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": "000000001",
                "type": "function",
                "function": {"name": "cat", "arguments": '{"b":1,"a":12345678901234567890}'},
            }
        ],
    }


def test_thinking_that_was_not_shown_comes_back() -> None:
    """From its signature; another server's signature is nothing, and an empty one is fine."""

    def reasoning(thinking: str, signature: str) -> Any:
        block = {"type": "thinking", "thinking": thinking, "signature": signature}
        return read({"role": "assistant", "content": [block]})[0].get("reasoning_content")

    assert reasoning("", seal("secret")) == "secret"
    assert reasoning("shown", "") == "shown"
    assert reasoning("", "c3R1Yg==") is None


def test_ids_and_signatures_make_no_difference() -> None:
    """The same conversation under other ids is the same."""

    def conversation(id_: str, signature: str) -> list[dict[str, Any]]:
        thought = {"type": "thinking", "thinking": "hm", "signature": signature}
        return read(
            user("go"),
            {"role": "assistant", "content": [thought, use(id_)]},
            user([{"type": "tool_result", "tool_use_id": id_, "content": "done"}]),
        )

    assert conversation("toolu_1", "a") == conversation("tooluX", "")


def test_a_final_answer_is_gone_on_with() -> None:
    """Unless it called a tool or says nothing."""
    assert continues(read(user("a"), {"role": "assistant", "content": "{"}))
    assert not continues(read(user("a")))
    assert not continues(read(user("a"), {"role": "assistant", "content": [text("t"), use("x")]}))
    assert not continues(read(user("a"), {"role": "assistant", "content": []}))


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("hi", "messages[0]"),
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        (user(7), "messages[0].content"),
        (user([7]), "messages[0].content[0]"),
        (user([{"text": "x"}]), "messages[0].content[0]"),
        (user([{"type": "text"}]), "messages[0].content[0].text"),
        (user([{"type": "tool_result", "content": "x"}]), "messages[0].content[0]"),
        (user([{"type": "document"}]), "messages[0].content[0].source"),
        (user([{"type": "tool_reference"}]), "messages[0].content[0]"),
        ({"role": "assistant", "content": [use("x", "")]}, "messages[0].content[0]"),
        ({"role": "assistant", "content": [use("x", input=[])]}, "messages[0].content[0].input"),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": 1}]},
            "messages[0].content[0].thinking",
        ),
    ],
)
def test_what_cannot_be_read_is_named(message: Any, place: str) -> None:
    """The refusal has the place."""
    with pytest.raises(RequestInvalid) as refused:
        read(message)
    assert refused.value.param == place
    assert place in str(refused.value)


@pytest.mark.parametrize("messages", [None, [], "hi"])
def test_messages_are_a_list_with_something_in_it(messages: Any) -> None:
    """Nothing else is a conversation."""
    with pytest.raises(RequestInvalid, match="messages: send a list"):
        Conversation(MODEL, {}).normalise("s", messages)
