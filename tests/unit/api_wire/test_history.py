"""Ids of a conversation by position."""

from __future__ import annotations

from typing import Any

from omlxd.api.wire.history import continues, linked


def call(id_: str, name: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}}


def conversation(first: str, second: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "", "tool_calls": [call(first, "a"), call(second, "b")]},
        {"role": "tool", "tool_call_id": second, "content": "B"},
        {"role": "tool", "tool_call_id": first, "content": "A"},
    ]


def test_ids_never_reach_the_prompt() -> None:
    """The same conversation under other ids is the same."""
    assert linked(conversation("call_x", "call_y")) == linked(conversation("1", "2"))


def test_results_follow_their_calls_in_any_order() -> None:
    """Each has its call's number and its tool's name, where it stood."""
    results = linked(conversation("x", "y"))[2:]
    assert [(each["tool_call_id"], each["name"]) for each in results] == [
        ("000000002", "b"),
        ("000000001", "a"),
    ]


def test_a_result_without_its_call_is_kept() -> None:
    """A compacted conversation may begin with one."""
    (kept,) = linked([{"role": "tool", "tool_call_id": "gone", "content": "A"}])
    assert kept == {"role": "tool", "tool_call_id": "000000001", "content": "A"}


def test_a_longer_conversation_begins_as_the_shorter_one() -> None:
    """What comes later renumbers nothing."""
    short = conversation("x", "y")
    longer = [*short, *conversation("x", "z")]
    assert linked(longer)[: len(short)] == linked(short)


def test_what_a_reply_goes_on_with() -> None:
    """The model's own last text, if there is any and it called nothing."""
    said = {"role": "assistant", "content": "{"}
    assert continues([{"role": "user", "content": "a"}, said])
    assert not continues([said, {"role": "user", "content": "a"}])
    assert not continues([{**said, "tool_calls": [call("x", "a")]}])
    assert not continues([{"role": "assistant", "content": "", "reasoning_content": "hm"}])
