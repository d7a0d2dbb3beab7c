"""Replies as a worker gives them, and the many ways in which their events arrive."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from hypothesis import strategies as st

from omlxd.ipc.messages import (
    Accepted,
    ChoiceEvent,
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

R = "req_ab"
USAGE = Usage(prompt_tokens=12, output_tokens=9, reasoning_tokens=4, cached_tokens=8, ram=8)
Kind = Literal["text", "reasoning", "call"]
_KINDS: Sequence[Kind] = ("text", "reasoning", "call")
_TEXT = st.text(alphabet=st.sampled_from(" \nab☃\x1f"), max_size=8)


@dataclass(frozen=True, slots=True)
class Part:
    """`text` of a call are its arguments; one that was `cut` has the beginning of some."""

    kind: Kind
    text: str
    name: str = ""
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice."""

    parts: Sequence[Part]
    reason: FinishReason


@st.composite
def replies(
    draw: st.DrawFn, names: Sequence[str], *, max_calls: int = 5, may_cut: bool = False
) -> Reply:
    """Any mix of text, reasoning and calls, of which `max_calls` at most are whole."""
    parts: list[Part] = []
    num_calls = 0
    for kind in draw(st.lists(st.sampled_from(_KINDS), max_size=6)):
        if kind != "call":
            parts.append(Part(kind, draw(_TEXT)))
            continue
        keys = st.sampled_from(["input", "a", "é"])
        arguments = draw(st.dictionaries(keys, st.text(max_size=5), max_size=2))
        written = msgspec.json.encode(arguments).decode()
        name = draw(st.sampled_from(names))
        if may_cut and draw(st.booleans()):
            half = written[: draw(st.integers(0, len(written)))]
            parts.append(Part("call", half, name, cut=f"<call>{name} {half}"))
        elif num_calls < max_calls:
            num_calls += 1
            parts.append(Part("call", written, name))
    if num_calls:
        return Reply(parts, "tool_calls")
    return Reply(parts, draw(st.sampled_from(("stop", "length", "aborted"))))


@st.composite
def arrivals(draw: st.DrawFn, choices: Sequence[Reply]) -> list[Event]:
    """The events of the choices of one request: cut at any places, mixed in any order."""
    queues = [_events(draw, index, reply) for index, reply in enumerate(choices)]
    events: list[Event] = [Accepted(R, USAGE.prompt_tokens)]
    while waiting := [queue for queue in queues if queue]:
        events.append(draw(st.sampled_from(waiting)).pop(0))
    return [*events, Completed(R, USAGE)]


def whole_replies(names: Sequence[str]) -> st.SearchStrategy[list[Event]]:
    """The events of one choice in which nothing was cut."""
    return replies(names).flatmap(lambda reply: arrivals([reply]))


def _events(draw: st.DrawFn, index: int, reply: Reply) -> list[ChoiceEvent]:
    events: list[ChoiceEvent] = []
    numbers = itertools.count()
    for part in reply.parts:
        cuts = sorted(draw(st.sets(st.integers(0, len(part.text)), max_size=3)))
        pieces = [part.text[a:b] for a, b in itertools.pairwise([0, *cuts, len(part.text)])]
        if part.kind == "call":
            number = next(numbers)
            events.append(ToolCallBegin(R, index, number, part.name))
            events += [ToolCallArguments(R, index, number, piece) for piece in pieces]
            events.append(ToolCallEnd(R, index, number, cut=part.cut))
        else:
            delta = Delta if part.kind == "text" else ReasoningDelta
            events += [delta(R, index, piece) for piece in pieces]
    return [*events, Finished(R, index, reply.reason)]
