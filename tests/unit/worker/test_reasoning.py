"""Reasoning parted from the answer, under any chunking."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.worker.output_format import OutputFormat
from omlxd.worker.reasoning import ReasoningSplitter, Said, Thought

THINK = OutputFormat(think_start="<think>", think_end="</think>")
HARMONY = OutputFormat(
    think_start="<|channel|>analysis<|message|>",
    think_end="<|end|>",
    dropped=("<|start|>assistant", "<|channel|>final<|message|>"),
)


def split(chunks: list[str], form: OutputFormat = THINK, *, opened: bool = False) -> Any:
    """(reasoning, answer)"""
    splitter = ReasoningSplitter(form, in_reasoning=opened)
    parts = [part for chunk in chunks for part in splitter.feed(chunk)]
    parts += splitter.feed("", final=True)
    assert splitter.num_held == 0
    return tuple(
        "".join(part.text for part in parts if isinstance(part, kind)) for kind in (Thought, Said)
    )


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("plain", False, ("", "plain")),
        ("<think>\nhm\n</think>\n\nyes", False, ("hm", "yes")),
        (" \n<think>hm</think>yes", False, ("hm", "yes")),
        ("hm\n</think>\n\nyes\n", True, ("hm", "yes\n")),
        ("\n</think>\n\n  x", True, ("", "  x")),
        ("a\n\nb\n</think>c", True, ("a\n\nb", "c")),
        ("no end", True, ("no end", "")),
        ("<think>no end\n", False, ("no end", "")),
        ("<think>a</think>\n<think>b</think>c", False, ("ab", "c")),
        ("say <think>x</think>", False, ("", "say <think>x</think>")),
        ("<thin", False, ("", "<thin")),
        ("  \n", False, ("", "  \n")),
        ("  indented", False, ("", "  indented")),
        ("a</think>b</think>c", True, ("a", "b</think>c")),
    ],
)
def test_reasoning_is_what_stands_before_the_answer(
    text: str, opened: bool, expected: tuple[str, str]
) -> None:
    """Character by character and at once; marks in the answer are text."""
    assert split([text], opened=opened) == expected
    assert split(list(text), opened=opened) == expected


def test_channels_are_marks_too() -> None:
    """What only says which channel follows is neither reasoning nor answer."""
    text = (
        "<|channel|>analysis<|message|>one<|end|><|start|>assistant"
        "<|channel|>analysis<|message|> two<|end|>"
        "<|start|>assistant<|channel|>final<|message|>so"
    )
    assert split([text], HARMONY) == ("one two", "so")
    assert split(list(text), HARMONY) == ("one two", "so")
    assert split(["<|channel|>final<|message|>so"], HARMONY) == ("", "so")


PIECES = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<thi", "nk>", "</", "\n", " ", "a", "think>", "<|end|>"]
    ),
    max_size=12,
)


@given(PIECES, st.booleans(), st.sampled_from([THINK, HARMONY, OutputFormat()]))
def test_any_chunking_gives_the_same_parts(
    chunks: list[str], opened: bool, form: OutputFormat
) -> None:
    """In pieces, by character and at once."""
    opened = opened and bool(form.think_start)
    whole = split(["".join(chunks)], form, opened=opened)
    assert split(chunks, form, opened=opened) == whole
    assert split(list("".join(chunks)), form, opened=opened) == whole


@given(PIECES)
def test_a_model_without_marks_says_everything(chunks: list[str]) -> None:
    """Nothing is taken from its text, and nothing waits."""
    splitter = ReasoningSplitter(OutputFormat(), in_reasoning=False)
    for chunk in filter(None, chunks):
        assert splitter.feed(chunk) == [Said(chunk)]
