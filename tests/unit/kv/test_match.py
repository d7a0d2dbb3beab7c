"""What can be restored: the longest prefix that every kind of layer can go on from."""

from __future__ import annotations

import pytest

from omlxd.kv.types import Layout
from tests.unit.kv.build import (
    FULL,
    HYBRID,
    LAYOUTS,
    MIXED,
    POINT_BYTES,
    RECURRENT,
    SLIDING,
    Driver,
    letters,
)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("text", ["abcdefghij", "abcdefgh", "abcdefghi", "ab", "abcd"])
def test_the_very_same_prompt_runs_one_token(layout: Layout, text: str) -> None:
    """A prompt cut one token before its end restores all but that token, on every layout."""
    driver = Driver(layout)
    driver.store(text[:-1], request_id="first")
    match = driver.match(text)
    assert match.point == len(text) - 1
    assert match.why_not_more == "exact prompt"
    assert match.donor == "first"
    assert (match.ram_tokens, match.ssd_tokens) == (match.point, 0)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_next_turn_restores_to_the_token(layout: Layout) -> None:
    """What a reply ended with is reused to the last token: tails are kept in RAM."""
    driver = Driver(layout)
    driver.store("abcdefghij")
    match = driver.match("abcdefghijXYZ and more")
    assert match.point == 10
    assert [(block.start, block.tokens) for block in match.run] == [(0, 4), (4, 4), (8, 2)]
    assert match.diverged_at is None
    assert match.why_not_more == "never stored"


def test_a_run_names_what_the_join_needs() -> None:
    """Keys and values of all blocks, windows within reach of the point, the state at the point."""
    driver = Driver(MIXED)
    driver.store("abcdefgh")
    driver.store("abcdefghijkl")
    driver.store("abcdefghijklmn")
    match = driver.match("abcdefghijklmnop")
    # w = 6 reaches back from 14 to 9: the block [8, 12) and the tail.
    assert driver.used(match) == [
        *("kv abcd", "kv efgh"),
        *("kv ijkl", "window ijkl"),
        *("kv mn", "window mn", "point mn"),
    ]


def test_reuse_is_to_the_token_where_nothing_is_recurrent() -> None:
    """A prompt that diverges inside a block reuses that block in part."""
    driver = Driver(FULL)
    driver.store("abcdefghijkl")
    match = driver.match("abcdefXXXXXXXXX")
    assert match.point == 6
    assert [(block.start, block.tokens) for block in match.run] == [(0, 4), (4, 4)]
    assert (match.diverged_at, match.why_not_more) == (6, "diverged")


def test_a_block_beyond_the_last_token_but_one_is_used_in_part() -> None:
    """A prompt that ends on a boundary takes its last full block up to its last token but one."""
    driver = Driver(FULL)
    driver.store("abcdefgh")
    assert driver.match("abcdefgh").point == 7
    assert driver.match("abcdefg").point == 6


def test_recurrent_layers_go_on_only_from_their_points() -> None:
    """Diverging behind a point goes back to it, and without one to the start."""
    driver = Driver(HYBRID)
    driver.store("abcd")
    driver.store("abcdefghij")
    assert driver.match("abcdefghXXXX").point == 4
    assert driver.match("abcdefghijXX").point == 10
    match = driver.match("abXXXX")
    assert (match.point, match.diverged_at, match.why_not_more) == (0, 2, "not restorable here")


def test_a_state_behind_the_last_token_but_one_does_not_serve() -> None:
    """A prompt that ends on a boundary with a point has to go on from an older one."""
    driver = Driver(HYBRID)
    driver.store("abcd")
    driver.store("abcdefgh")
    assert driver.match("abcdefgh").point == 4
    assert driver.match("abcdefghX").point == 8


def test_tails_of_every_parent_on_the_path_are_candidates() -> None:
    """A tail's point can lie deeper than any boundary that has one."""
    driver = Driver(HYBRID)
    driver.store("abcd")
    driver.store("abcdef")  # its tail hangs on the first block
    driver.store("abcdefghijkl", at_point=False)  # two more blocks, without points
    match = driver.match("abcdefghijklmnop")
    assert match.point == 6
    assert driver.used(match)[-2:] == ["kv ef", "point ef"]


def test_the_longest_of_several_tails_wins() -> None:
    """Of tails under one parent the longest that the prompt goes through is taken."""
    driver = Driver(HYBRID)
    for text in ("abcde", "abcdefg", "abcdefX", "abcdef"):
        driver.store(text)
    assert driver.match("abcdefgZZ").point == 7
    assert driver.match("abcdefZZZ").point == 6


def test_without_growing_layers_the_path_goes_over_blocks_that_hold_nothing() -> None:
    """All-recurrent models restore from a point though no block before it is stored."""
    driver = Driver(RECURRENT)
    driver.store("abcdefghijkl")
    match = driver.match("abcdefghijklmnop")
    assert match.point == 12
    assert [block.keys == () for block in match.run] == [True, True, False]
    assert driver.match("abcdefghijkX").point == 0


def test_windows_have_to_cover_the_reach_of_the_point_without_a_hole() -> None:
    """A missing window moves the point to where the windows that are there suffice."""
    driver = Driver(SLIDING)
    text = "abcdefghijklmnop"
    for cut in driver.missing(text):
        if (cut.kind, cut.start) != ("window", 8):
            driver.put(cut, text)
    # 16 needs [11, 16) and so the block at 8; 8 needs [3, 8).
    assert driver.match("abcdefghijklmnopX").point == 8
    assert driver.match("abcdefghijklmnopX").why_not_more == "not restorable here"


def test_the_end_of_a_blocks_window_is_enough_when_it_reaches() -> None:
    """A window piece may hold the block's last tokens only."""
    driver = Driver(SLIDING)
    text = "abcdefghijkl"
    for cut in driver.missing(text):
        if cut.kind == "kv":
            driver.put(cut, text)
        elif cut.start == 4:
            driver.put(cut, text, held=1)
        elif cut.start == 8:
            driver.put(cut, text)
    match = driver.match("abcdefghijklX")  # needs [7, 12)
    assert match.point == 12
    assert driver.used(match)[-3:] == ["window efgh", "kv ijkl", "window ijkl"]
    assert driver.match("abcdefghijkX").point == 0  # 11 needs [6, 11)


def test_a_window_within_one_block_needs_no_other() -> None:
    """Where the window is shorter than a block, the block's own piece suffices."""
    layout = Layout(block_tokens=4, grows=True, window=3)
    driver = Driver(layout)
    text = "abcdefgh"
    for cut in driver.missing(text):
        if cut.kind == "kv" or cut.start == 4:
            driver.put(cut, text)
    assert driver.match("abcdefghX").point == 8
    assert driver.match("abcdefgX").point == 7  # needs [5, 7)
    assert driver.match("abcdefX").point == 6  # needs [4, 6)
    assert driver.match("abcdeX").point == 0  # needs [3, 5)


def test_a_block_without_its_keys_and_values_ends_the_path() -> None:
    """A point behind a hole is out of reach."""
    driver = Driver(HYBRID)
    text = "abcdefghijkl"
    driver.store("abcd")
    for cut in driver.missing(text):
        if (cut.kind, cut.start) != ("kv", 4):
            driver.put(cut, text)
    assert driver.match("abcdefghijklX").point == 4


def test_blocks_with_other_images_are_not_shared() -> None:
    """Equal tokens over another image match only up to the block that holds it."""
    driver = Driver(FULL)
    driver.store("abcdIIghij", extra={1: b"cat"})
    assert driver.match("abcdIIghijX", extra={1: b"cat"}).point == 10
    assert driver.match("abcdIIghijX", extra={1: b"dog"}).point == 4
    assert driver.match("abcdIIghijX").point == 4
    assert driver.match("abcdIIgZ", extra={1: b"cat"}).point == 7


def test_the_donor_is_who_stored_the_deepest_block() -> None:
    """A match names the request whose block it ends in, not the one it began with."""
    driver = Driver(FULL)
    driver.store("abcd", request_id="one")
    driver.store("abcdefgh", request_id="two")
    assert driver.match("abcdefghX").donor == "two"
    assert driver.match("abcdXX").donor == "one"
    assert driver.match("XX").donor is None


def test_a_prompt_of_one_token_restores_nothing() -> None:
    """There is always one token to run."""
    driver = Driver(FULL)
    driver.store("abcd")
    match = driver.match("a")
    assert (match.point, match.run, match.why_not_more) == (0, (), "exact prompt")


def test_what_is_pinned_counts_once_for_room() -> None:
    """Two rows that wait for the same blocks need the room of one."""
    driver = Driver(HYBRID, hot_bytes=80 + 100, cold=True)
    driver.store("abcdefgh")
    driver.write_all()
    driver.forget_ram()
    first = driver.match("abcdefghX")
    assert len(first.loads) == 3
    driver.cache.pin(first)
    driver.load(first, "abcdefghX")
    second = driver.match("abcdefghX")
    assert (second.point, second.is_ready) == (8, True)
    driver.cache.pin(second)
    assert driver.cache.stats().pinned_bytes == 40 + 40 + 40
    driver.keep(driver.cache.unpin(first))
    assert driver.cache.stats().pinned_bytes == 120
    driver.keep(driver.cache.unpin(second))
    assert driver.cache.stats().pinned_bytes == 0


def test_many_unrelated_children_are_no_burden() -> None:
    """Among thousands of first blocks that share a token the one that fits is found."""
    driver = Driver(HYBRID, hot_bytes=10_000_000)
    cache = driver.cache
    for number in range(3_000):
        tokens = [1, number, 2, 3, 4]
        keys = cache.chain_keys()
        for cut in cache.missing(tokens, keys, computed=5, at_point=True):
            cache.put(cut, POINT_BYTES, request_id=str(number), now=0.0)
    match = cache.match([1, 1_234, 2, 3, 4, 5], cache.chain_keys())
    assert (match.point, match.donor) == (5, "1234")


def test_tokens_that_come_later_do_not_change_an_answer() -> None:
    """A match holds although the row's list grows in place."""
    driver = Driver(FULL)
    driver.store("abcdefgh")
    tokens = letters("abcdefX")
    keys = driver.cache.chain_keys()
    match = driver.cache.match(tokens, keys)
    tokens += letters("YZ")
    keys.extend(tokens)
    assert match.point == 6
    assert driver.cache.match(tokens, keys).point == 6
