"""What every dialect does to a conversation once its messages are in the neutral form.

Ids differ from client to client and from run to run, so they never reach a prompt: calls are
numbered in the order in which they stand, and results follow them. A result whose call is not in
the conversation (it was compacted away) is kept, under a number of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

Message = dict[str, Any]

_ID_DIGITS = 9  # Mistral's templates take ids of nine characters only


def linked(messages: Sequence[Message]) -> list[Message]:
    """The messages with ids by position, and results that carry their tool's name."""
    numbers = count(1)
    calls: dict[str, tuple[str, str]] = {}  # the latest call under an id: its number, its name
    normal = []
    for message in messages:
        if tool_calls := message.get("tool_calls"):
            renamed = []
            for call in tool_calls:
                number = _number(next(numbers))
                calls[call.get("id") or number] = (number, call["function"]["name"])
                renamed.append({**call, "id": number})
            message = {**message, "tool_calls": renamed}
        elif message["role"] == "tool":
            message = _answering(message, calls, numbers)
        normal.append(message)
    return normal


def continues(messages: Sequence[Message]) -> bool:
    """Whether the reply goes on with the last message, which is the model's own."""
    last = messages[-1]
    return last["role"] == "assistant" and "tool_calls" not in last and bool(last["content"])


def _answering(message: Message, calls: dict[str, tuple[str, str]], numbers: count[int]) -> Message:
    number, name = calls.get(message.get("tool_call_id", ""), ("", ""))
    answered = {**message, "tool_call_id": number or _number(next(numbers))}
    if name:
        answered["name"] = name
    return answered


def _number(value: int) -> str:
    return f"{value:0{_ID_DIGITS}}"
