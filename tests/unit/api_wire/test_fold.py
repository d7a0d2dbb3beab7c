"""The events of a job put together."""

from __future__ import annotations

from omlxd.api.wire.fold import Call, Choice, Fold, Reasoning, Text
from omlxd.ipc.messages import (
    Delta,
    Event,
    Finished,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
)


def folded(*events: Event) -> Choice:
    fold = Fold(1)
    for event in events:
        fold.add(event)
    return fold.choices[0]


def test_blocks_keep_the_order_of_events() -> None:
    """Text before a call and text after it are two blocks; pieces of one are joined."""
    choice = folded(
        ReasoningDelta("r", 0, "hm"),
        ReasoningDelta("r", 0, "m"),
        Delta("r", 0, "one"),
        ToolCallBegin("r", 0, 0, "ls"),
        ToolCallArguments("r", 0, 0, '{"a"'),
        ToolCallArguments("r", 0, 0, ":1}"),
        ToolCallEnd("r", 0, 0),
        Delta("r", 0, "two"),
        Finished("r", 0, "tool_calls"),
    )
    assert choice.blocks == [
        Reasoning(["hm", "m"]),
        Text(["one"]),
        Call("ls", ['{"a"', ":1}"]),
        Text(["two"]),
    ]
    assert (choice.text, choice.reasoning) == ("onetwo", "hmm")
    assert [(call.name, call.arguments) for call in choice.calls] == [("ls", '{"a":1}')]


def test_an_empty_delta_begins_no_block() -> None:
    """It may only carry log-probabilities."""
    assert folded(Delta("r", 0, "")).blocks == []


def test_a_cut_call_is_text() -> None:
    """Nobody runs half a call, and nothing of it is lost; the calls around it stay."""
    choice = folded(
        ToolCallBegin("r", 0, 0, "ls"),
        ToolCallArguments("r", 0, 0, "{}"),
        ToolCallEnd("r", 0, 0),
        ToolCallBegin("r", 0, 1, "rm"),
        ToolCallArguments("r", 0, 1, '{"pa'),
        ToolCallEnd("r", 0, 1, cut='<call>rm {"pa'),
        Finished("r", 0, "length"),
    )
    assert choice.calls == [Call("ls", ["{}"])]
    assert choice.text == '<call>rm {"pa'


def test_a_cut_call_goes_on_with_the_text_beside_it() -> None:
    """As the model wrote it: one text, not several that a client would part."""
    choice = folded(
        Delta("r", 0, "So:"),
        ToolCallBegin("r", 0, 0, "rm"),
        ToolCallEnd("r", 0, 0, cut=" <call>rm</call>"),
        Delta("r", 0, " Done."),
        Finished("r", 0, "stop"),
    )
    assert [block.text for block in choice.blocks if isinstance(block, Text)] == [
        "So: <call>rm</call> Done."
    ]
