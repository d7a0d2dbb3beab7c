"""Why a match goes no further: one word of a fixed set, for people to read."""

from __future__ import annotations

from omlxd.kv.gone import MOST, Gone
from omlxd.kv.plans import WHY_NOT_MORE
from omlxd.kv.types import EntryKey
from tests.unit.kv.build import FULL, HYBRID, RECURRENT, Driver


def why(driver: Driver, text: str) -> tuple[int, str, int | None]:
    match = driver.match(text)
    assert match.why_not_more in WHY_NOT_MORE
    return match.point, match.why_not_more, match.diverged_at


def test_an_empty_cache_has_nothing_stored() -> None:
    """There is no path to compare with."""
    assert why(Driver(FULL), "abcdefgh") == (0, "nothing stored", None)


def test_a_new_end_was_never_stored() -> None:
    """The prompt goes on where the stored path ends."""
    driver = Driver(FULL)
    driver.store("abcdef")
    assert why(driver, "abcdefXX") == (6, "never stored", None)


def test_a_difference_is_named_by_its_token() -> None:
    """The first token that differs from the nearest of several paths."""
    driver = Driver(FULL)
    driver.store("abcdefgh")
    driver.store("abcdeXgh")
    assert why(driver, "abcdefYY") == (6, "diverged", 6)
    assert why(driver, "abcdeXYY") == (6, "diverged", 6)
    assert why(driver, "abYY") == (2, "diverged", 2)
    assert why(driver, "YYYY") == (0, "diverged", 0)
    assert why(driver, "abcdYYYY") == (4, "diverged", 4)


def test_a_missing_state_is_told_apart_from_a_difference() -> None:
    """The tokens are held further than any layer's state allows to go on from."""
    driver = Driver(HYBRID)
    driver.store("abcd")
    driver.store("abcdefghijkl")
    assert why(driver, "abcdefghijXX") == (4, "not restorable here", 10)
    assert why(driver, "abcdefghXXXX") == (4, "not restorable here", 8)


def test_an_evicted_block_is_told_apart_from_a_new_one() -> None:
    """Until it is stored again."""
    driver = Driver(FULL, hot_bytes=80)
    driver.store("abcdefgh")
    driver.store("1111")
    assert why(driver, "abcdefghXX") == (4, "evicted", None)
    driver.store("abcdefgh")
    assert why(driver, "abcdefghXX") == (8, "never stored", None)


def test_an_evicted_point_is_told_where_there_are_only_points() -> None:
    """All-recurrent models have no keys and values to look for."""
    driver = Driver(RECURRENT, hot_bytes=100)
    driver.store("abcdefgh")
    driver.store("1111")
    assert why(driver, "abcdefghX") == (0, "evicted", 0)


def test_only_on_disk_nobody_knows_what_differs() -> None:
    """Files have no tokens: what does not match is new as far as anyone can tell."""
    driver = Driver(FULL, cold=True)
    driver.store("abcdefgh")
    driver.write_all()
    driver.forget_ram()
    assert why(driver, "abcdXXXX") == (4, "never stored", None)
    assert why(driver, "XXXX") == (0, "never stored", None)


def test_what_went_is_remembered_within_a_bound() -> None:
    """The oldest is forgotten first, and what comes back is not gone."""
    gone = Gone()
    keys = [EntryKey(number.to_bytes(32, "big")) for number in range(MOST + 2)]
    for key in keys:
        gone.went(key, "evicted")
    assert len(gone) == MOST
    assert [gone.get(key) for key in keys[:3]] == [None, None, "evicted"]
    gone.came(keys[2])
    assert gone.get(keys[2]) is None
    gone.clear()
    assert len(gone) == 0
