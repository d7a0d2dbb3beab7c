"""`omlxctl why` in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from omlxctl.whyview import REASONS, why_lines
from tests.fakes.fake_cache import TIME, a_match, a_why

HEAD = f"req_1: chat.completions to Beta, ended {TIME} with 200 (stop); first token after 2,000 ms"


def told(**match: Any) -> list[str]:
    """The lines under the head; the prompt has 1,000 tokens."""
    head, *lines = why_lines(a_why(match=a_match(**match), computed_tokens=400))
    assert head == HEAD
    return lines


def test_where_the_tokens_came_from() -> None:
    """Each tier with its tokens, and what had to be computed."""
    both = told(ram=500, ssd=100)
    assert both == [
        "The prompt has 1,000 tokens: 500 came from RAM and 100 came from disk, 400 were computed."
    ]
    assert "600 came from disk, 400" in told(ssd=600)[0]
    assert "nothing of it was reused" in told()[0]


def test_who_stored_it() -> None:
    """The request that the reused part comes from."""
    assert "The reused part was stored by req_0." in told(ram=1, donor="req_0")


def test_the_first_difference() -> None:
    """Its token; its message and text where they are known."""
    first = "It first differs from the nearest stored prompt at token 1,234"
    assert f"{first}." in told(diverged_at=1234)
    assert f"{first}, in message 3: 'a date'." in told(
        diverged_at=1234, message_index=3, excerpt="a date"
    )
    assert any("at token 0" in line for line in told(diverged_at=0))


@pytest.mark.parametrize("word", REASONS)
def test_every_reason_is_a_sentence(word: str) -> None:
    """What the cache says in a word or two is explained."""
    last = told(why_not_more=word)[-1]
    assert last == f"Not more, since {REASONS[word]}."
    assert len(last) > len(word) + 30


def test_a_reason_of_another_version_is_shown_as_it_is() -> None:
    """An older omlxctl may not know a newer daemon's word."""
    assert told(why_not_more="moon phase")[-1] == "Not more, since moon phase."


def test_blocks_that_were_left_on_disk() -> None:
    """Loading them would have taken longer, for example."""
    assert told(cold_skipped="slower than computing")[-1] == (
        "Blocks on disk were left there: slower than computing."
    )


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"prefix_reuse": False, "prefix_reuse_reason": "its caches cannot be cut"},
            "Nothing can be reused for Beta: its caches cannot be cut.",
        ),
        (
            {"error": "the prompt is too long"},
            "It ended before its prompt was looked up: the prompt is too long",
        ),
        ({"prefix_reuse": None}, "Its prompt was not looked up in the cache."),
    ],
)
def test_without_a_match_it_says_why(fields: dict[str, Any], line: str) -> None:
    """The request did not get as far, or its model has no cache."""
    assert why_lines(a_why(match=None, **fields)) == [HEAD, line]


def test_one_that_has_not_ended() -> None:
    """Its prompt may have been looked up already."""
    why = a_why(ended_at="", model="", api="", prompt_tokens=0, computed_tokens=0)
    assert why_lines(why)[0] == "req_1: a request to a model, not ended yet"
