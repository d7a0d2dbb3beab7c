"""Tails on disk: which are written, found again after a restart, and left behind."""

from __future__ import annotations

import pytest

from omlxd.kv.chain_keys import ChainKeys
from omlxd.kv.types import EntryKey, Layout
from tests.unit.kv.build import FULL, HYBRID, SLIDING, WINDOWED, Driver, letters

PROMPT = "abcdefghij"
REPLY = PROMPT + "KLMNo"


def leave_behind(driver: Driver, row: str, prompt: str) -> list[str]:
    """What is to be removed once a row with this prompt has come so far."""
    keys: ChainKeys = driver.keys(row)
    left = driver.cache.tails_left_behind(letters(row), keys, prompt_tokens=len(prompt))
    driver.cache.check_integrity()
    return [driver.disk.pop(key) for key in left]


def take_turn(driver: Driver, prompt: str, row: str) -> list[str]:
    """As a row does it: its prompt is stored, then its reply. Gives what was removed."""
    removed = []
    for end in (prompt, row):
        driver.store(end)
        removed += leave_behind(driver, end, prompt)
    return removed


@pytest.mark.parametrize("layout", [FULL, SLIDING, WINDOWED], ids=["full", "sliding", "windowed"])
def test_prompt_and_reply_are_found_to_the_token_after_a_restart(layout: Layout) -> None:
    """Also where the reply ended before the prompt's tail was written."""
    driver = Driver(layout, cold=True)
    take_turn(driver, PROMPT, REPLY)
    driver.write_all()
    driver.forget_ram()
    assert driver.match(PROMPT).point == len(PROMPT) - 1
    assert driver.match(REPLY + "xyz").point == len(REPLY)


def test_a_tail_whose_write_fails_while_its_row_goes_on_is_tried_again() -> None:
    """It is of use on disk although RAM has a longer block of the same row."""
    driver = Driver(FULL, cold=True)
    driver.store(PROMPT)
    keys = driver.cache.writes(1_000)
    driver.store(REPLY)
    for key in keys:
        driver.cache.write_failed(key, "busy")
    assert "kv ij" in driver.write_all()


def test_a_match_reads_a_tail_like_a_block() -> None:
    """It is asked for by name, filed with the tokens it has, and counts as read from disk."""
    driver = Driver(FULL, cold=True)
    driver.store(PROMPT)
    driver.write_all()
    driver.forget_ram()
    match = driver.match(PROMPT + "X")
    assert driver.names(match.loads) == ["kv abcd", "kv efgh", "kv ij"]
    assert (match.point, match.run[-1].tokens, match.ssd_tokens) == (10, 2, 10)
    driver.load(match, PROMPT + "X")
    match = driver.match("abcdefghiX")
    assert (match.point, match.is_ready, match.diverged_at) == (9, True, 9)


def test_a_tail_that_cannot_be_read_leaves_the_blocks_before_it() -> None:
    """The next match does without, and does not ask for it again."""
    driver = Driver(FULL, cold=True)
    driver.store(PROMPT)
    driver.write_all()
    driver.forget_ram()
    match = driver.match(PROMPT)
    driver.cache.begin_load(match, letters(PROMPT), driver.keys(PROMPT))
    for key in match.loads:
        if driver.disk[key] == "kv ij":
            driver.cache.load_failed(key, "checksum")
        else:
            driver.keep(driver.cache.loaded(key, 40, now=0.0), key, driver.disk[key])
    match = driver.match(PROMPT)
    assert (match.point, match.is_ready) == (8, True)


def test_the_longer_of_two_tails_is_gone_on_from() -> None:
    """One in RAM of which less is the row's does not hide one on disk."""
    driver = Driver(FULL, cold=True)
    driver.store("abcdefg")
    driver.write_all()
    driver.forget_ram()
    driver.store("abcdeX")
    assert driver.match("abcdefgY").point == 7
    assert driver.match("abcdeXY").point == 6


def test_files_of_the_turn_before_are_removed() -> None:
    """When the next prompt is stored; its own tail and its reply's stay."""
    driver, asked = Driver(FULL, cold=True), REPLY + "pqrSTU"
    take_turn(driver, PROMPT, REPLY)
    driver.write_all()
    assert sorted(take_turn(driver, asked, asked + "vWXYZ")) == ["kv MNo", "kv ij"]
    driver.write_all()
    tails = sorted(name for name in driver.disk.values() if len(name) < len("kv abcd"))
    assert tails == ["kv U", "kv YZ"]


def test_a_tail_left_behind_before_it_was_written_is_not_written() -> None:
    """A slow disk does not write what nobody needs any more."""
    driver, asked = Driver(FULL, cold=True), REPLY + "pqrSTU"
    take_turn(driver, PROMPT, REPLY)
    assert take_turn(driver, asked, asked + "vWXYZ") == []
    assert driver.cache.stats().lost == {"superseded": 2}
    assert not {"kv ij", "kv MNo"} & set(driver.write_all())


def test_a_tail_that_was_read_is_left_behind_too() -> None:
    """A turn after a restart goes on from the reply's tail, and then removes its file."""
    driver, asked = Driver(FULL, cold=True), REPLY + "pqrSTU"
    take_turn(driver, PROMPT, REPLY)
    driver.write_all()
    driver.forget_ram()
    driver.load(driver.match(asked), asked)
    assert driver.use(asked).point == len(REPLY)
    assert take_turn(driver, asked, asked + "v") == ["kv MNo"]


def test_a_tail_that_finds_no_room_when_it_was_read_is_left_behind_too() -> None:
    """Whatever became of its array, there is a file of it."""
    driver, asked = Driver(FULL, cold=True), REPLY + "pqrSTU"
    take_turn(driver, PROMPT, REPLY)
    driver.write_all()
    driver.forget_ram()
    match = driver.match(asked)
    driver.cache.begin_load(match, letters(asked), driver.keys(asked))
    driver.cache.resize(0)
    for key in match.loads:
        driver.keep(driver.cache.loaded(key, 40, now=0.0))
    assert leave_behind(driver, asked, asked) == ["kv MNo"]


def test_what_is_on_disk_or_on_its_way_can_be_told() -> None:
    """Files that a use makes newer; there is none of what still waits, or was left behind."""
    driver = Driver(FULL, cold=True)
    driver.store(PROMPT)
    keys = list(driver.ram)
    assert driver.cache.have_files(keys) == []
    assert driver.cache.have_files(list(driver.cache.writes(1_000))) == keys
    for key in keys:
        driver.cache.written(key, 50)
    driver.cache.cold_gone(keys[1])
    assert driver.cache.have_files([*keys, EntryKey(b"other")]) == [keys[0], keys[2]]


def test_tails_with_states_are_not_written() -> None:
    """A whole state would have to be, for the sake of a few tokens."""
    driver = Driver(HYBRID, cold=True)
    take_turn(driver, PROMPT, REPLY)
    assert all(len(name.split()[1]) == 4 for name in driver.write_all())
