"""Which entries a row is cut for."""

from __future__ import annotations

import pytest

from omlxd.kv.types import Layout
from tests.unit.kv.build import FULL, HYBRID, LAYOUTS, MIXED, SLIDING, WINDOWED, Driver


def wanted(driver: Driver, text: str, *, at_point: bool = True) -> list[str]:
    return [
        f"{cut.kind} {text[cut.start : cut.stop]}"
        for cut in driver.missing(text, at_point=at_point)
    ]


def test_full_blocks_first_then_the_tail() -> None:
    """Cuts come from the head of the path to its end, and only the last is the newest."""
    driver = Driver(HYBRID)
    cuts = driver.missing("abcdefghij")
    assert [(cut.kind, cut.start, cut.stop) for cut in cuts] == [
        ("kv", 0, 4),
        ("kv", 4, 8),
        ("kv", 8, 10),
        ("point", 8, 10),
    ]
    assert [cut.is_tail for cut in cuts] == [False, False, True, True]
    assert [cut.is_newest for cut in cuts] == [False, False, True, True]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_is_stored_is_not_cut_again(layout: Layout) -> None:
    """After all was put nothing is missing, tail and point included."""
    driver = Driver(layout)
    driver.store("abcdefghij")
    assert wanted(driver, "abcdefghij") == []


def test_between_points_there_is_neither_tail_nor_point() -> None:
    """A row that merely passes is cut for full blocks' keys, values and windows."""
    assert wanted(Driver(MIXED), "abcdef", at_point=False) == ["kv abcd", "window abcd"]
    assert wanted(Driver(MIXED), "abcd", at_point=False) == ["kv abcd", "window abcd"]


def test_a_point_is_wanted_at_the_end_alone() -> None:
    """A state exists at exactly where the row stands, on a boundary or not."""
    driver = Driver(HYBRID)
    assert wanted(driver, "abcdefgh") == ["kv abcd", "kv efgh", "point efgh"]
    driver.store("abcdefgh")
    assert wanted(driver, "abcdefghi") == ["kv i", "point i"]
    assert wanted(driver, "abcd") == ["point abcd"]


def test_windows_of_old_blocks_are_wanted_only_within_reach() -> None:
    """Of blocks that are stored, those whose window a restore here would need."""
    driver = Driver(SLIDING)
    driver.store("abcdefghijkl", kinds=["kv"])
    assert wanted(driver, "abcdefghijkl") == ["window efgh", "window ijkl"]
    assert wanted(driver, "abcdefghijklm") == ["window ijkl", "kv m", "window m"]


def test_a_longer_window_is_wanted_where_the_held_one_is_too_short() -> None:
    """A piece is cut again if it covers less of its block than a restore here needs."""
    driver = Driver(WINDOWED)
    text = "abcdefgh"
    for cut in driver.missing(text):
        driver.put(cut, text, held=1)
    # At 8 the reach is [3, 8): one token of the first block, all of the second.
    assert wanted(driver, text) == ["window efgh"]
    cut = driver.missing(text)[0]
    driver.put(cut, text, held=3)
    assert wanted(driver, text) == ["window efgh"]
    driver.put(cut, text)
    assert wanted(driver, text) == []


def test_in_decode_a_short_window_out_of_reach_is_not_wanted_again() -> None:
    """Blocks whose keys and values come later are new for long; their windows are cut once."""
    driver = Driver(SLIDING)
    for cut in driver.missing("abcd"):
        if cut.kind == "window":
            driver.put(cut, "abcd", held=2)
    assert wanted(driver, "abcdefghijkl") == [
        *("kv abcd", "kv efgh", "window efgh", "kv ijkl", "window ijkl"),
    ]


def test_a_window_piece_that_is_not_longer_is_refused() -> None:
    """What is held stays, and its bytes are counted once."""
    driver = Driver(WINDOWED)
    (cut,) = driver.missing("abcd")
    driver.put(cut, "abcd", held=3)
    changes = driver.cache.put(cut, 20, request_id="r", now=0.0, held=2)
    assert (changes.stored, changes.refused) == (False, "already held")
    assert driver.cache.stats().hot_bytes == 30
    driver.put(cut, "abcd", held=4)
    assert driver.cache.stats().hot_bytes == 40


def test_what_is_being_read_is_not_cut() -> None:
    """An entry on its way from disk is not asked for, one that merely lies there is."""
    driver = Driver(FULL, cold=True)
    driver.store("abcdefgh")
    driver.write_all()
    driver.forget_ram()
    assert wanted(driver, "abcdefgh") == ["kv abcd", "kv efgh"]
    match = driver.match("abcdX")
    driver.cache.begin_load(match, [ord(letter) for letter in "abcdX"], driver.keys("abcdX"))
    assert wanted(driver, "abcdefgh") == ["kv efgh"]
