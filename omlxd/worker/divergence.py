"""Where in a conversation a place in its prompt lies: in which message, and in what text."""

from __future__ import annotations

from collections.abc import Sequence

BEFORE, AFTER = 20, 60  # characters of an excerpt


def message_at(contents: Sequence[str], prompt: str, at: int) -> int | None:
    """The message that holds, or is the next after, character `at` of the rendered prompt.

    Templates may trim contents, and nothing else: one that is not found as it is makes the answer
    None, as does a place behind all of them.
    """
    end = 0
    for index, content in enumerate(contents):
        text = content.strip()
        begin = prompt.find(text, end)
        if begin < 0:
            return None
        end = begin + len(text)
        if at < end:
            return index
    return None


def excerpt(prompt: str, at: int) -> str:
    """A little of the prompt on both sides of a place."""
    return prompt[max(0, at - BEFORE) : at + AFTER]
