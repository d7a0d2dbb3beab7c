"""Which message a place in the prompt belongs to, and the text around it."""

from __future__ import annotations

import pytest

from omlxd.worker.divergence import AFTER, BEFORE, excerpt, message_at

CONTENTS = ["be brief", "  what time is it?\n", "it is noon", "what time is it?"]
PROMPT = "<s>be brief</s><u>what time is it?</u><a>it is noon</a><u>what time is it?</u><a>"


@pytest.mark.parametrize(
    ("text", "number"),
    [("brief", 0), ("<u>", 1), ("what", 1), ("time is it?</u><a>it", 1), ("noon", 2)],
)
def test_a_place_is_in_the_message_that_holds_it_or_comes_next(text: str, number: int) -> None:
    """Contents are found in their order, whatever the template trims and puts between."""
    assert message_at(CONTENTS, PROMPT, PROMPT.index(text)) == number


def test_the_same_text_twice_is_two_messages() -> None:
    """The second is looked for behind the first."""
    assert message_at(CONTENTS, PROMPT, PROMPT.rindex("what")) == 3


def test_behind_the_last_message_there_is_none() -> None:
    """What differs is what the template puts at the end."""
    assert message_at(CONTENTS, PROMPT, PROMPT.rindex("<a>")) is None


def test_a_content_the_template_changed_gives_no_answer() -> None:
    """Better none than a wrong one."""
    assert message_at(["be BRIEF", "it is noon"], PROMPT, 50) is None


@pytest.mark.parametrize(
    ("at", "begin", "end"),
    [
        (100, 100 - BEFORE, 100 + AFTER),
        (5, 0, 5 + AFTER),
        (190, 190 - BEFORE, 200),
        (200, 180, 200),
    ],
)
def test_an_excerpt_is_a_little_of_both_sides(at: int, begin: int, end: int) -> None:
    """Eighty characters, fewer at the ends of the prompt."""
    prompt = "".join(chr(ord("a") + number % 26) for number in range(200))
    assert excerpt(prompt, at) == prompt[begin:end]
    assert BEFORE + AFTER == 80
