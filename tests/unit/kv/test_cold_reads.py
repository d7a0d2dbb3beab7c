"""What a match takes from disk: what is asked for, waited for, refused and lost."""

from __future__ import annotations

import pytest

from omlxd.kv.plans import Match
from tests.unit.kv.build import FULL, HYBRID, SLIDING, Driver, letters

TEXT = "abcdefghijkl"


@pytest.fixture
def restarted() -> Driver:
    """Three blocks on disk, each of them 50 bytes, and nothing in RAM."""
    driver = Driver(FULL, cold=True)
    driver.store(TEXT, request_id="old")
    driver.write_all()
    driver.forget_ram()
    return driver


def begin(driver: Driver, match: Match, text: str) -> None:
    driver.cache.begin_load(match, letters(text), driver.keys(text))


def test_a_match_names_what_has_to_come_from_disk(restarted: Driver) -> None:
    """Blocks on disk count, in whole and at the prompt's end in part."""
    match = restarted.match(TEXT)
    assert match.point == 11
    assert restarted.names(match.loads) == ["kv abcd", "kv efgh", "kv ijkl"]
    assert (match.ram_tokens, match.ssd_tokens, match.donor) == (0, 11, None)
    assert not match.is_ready
    assert restarted.match(TEXT, hot_only=True).point == 0


def test_what_is_being_read_is_pending_and_not_read_twice(restarted: Driver) -> None:
    """A second match waits for the same reads and asks only for what is not on its way."""
    begin(restarted, restarted.match("abcdefghX"), "abcdefghX")
    second = restarted.match(TEXT)
    assert restarted.names(second.pending) == ["kv abcd", "kv efgh"]
    assert restarted.names(second.loads) == ["kv ijkl"]


def test_what_was_read_is_a_block_like_any_other(restarted: Driver) -> None:
    """It is matched in RAM, shared in part, and its tokens count as read from disk once."""
    restarted.load(restarted.match(TEXT), TEXT)
    match = restarted.match("abcdefXX")
    assert (match.point, match.is_ready, match.diverged_at) == (6, True, 6)
    assert (match.ram_tokens, match.ssd_tokens) == (0, 6)
    restarted.use("abcdefXX")
    match = restarted.match(TEXT)
    assert (match.ram_tokens, match.ssd_tokens) == (8, 3)
    assert restarted.write_all() == []


def test_a_failed_read_leaves_the_best_of_the_rest(restarted: Driver) -> None:
    """The next match ends before the lost block, and says why."""
    match = restarted.match(TEXT)
    begin(restarted, match, TEXT)
    for key in match.loads:
        if restarted.disk[key] == "kv efgh":
            restarted.cache.load_failed(key, "checksum")
        else:
            restarted.keep(restarted.cache.loaded(key, 40, now=0.0), key, restarted.disk[key])
    match = restarted.match(TEXT)
    assert (match.point, match.is_ready) == (4, True)
    assert match.why_not_more == "on disk, unreadable"
    assert restarted.cache.stats().load_failures == {"checksum": 1}
    restarted.store(TEXT)
    assert restarted.match(TEXT).point == 11
    assert restarted.write_all() == ["kv efgh"]


def test_a_match_takes_no_more_from_disk_than_ram_can_hold(restarted: Driver) -> None:
    """The point moves back to what fits, and the match says so."""
    restarted.cache.resize(100)
    match = restarted.match(TEXT)
    assert (match.point, len(match.loads)) == (8, 2)
    assert match.why_not_more == "no room in RAM"


@pytest.mark.parametrize(("hot_bytes", "point"), [(150, 8), (149, 4), (100, 4), (99, 0)])
def test_states_take_room_too(hot_bytes: int, point: int) -> None:
    """What a match takes from disk has to fit with its state."""
    driver = Driver(HYBRID, cold=True)
    driver.store("abcd")
    driver.store("abcdefgh")
    driver.write_all()
    driver.forget_ram()
    driver.cache.resize(hot_bytes)
    assert driver.match("abcdefghX").point == point


@pytest.mark.parametrize(("hot_bytes", "point"), [(250, 12), (249, 8), (200, 8), (199, 4)])
def test_windows_in_reach_take_room_too(hot_bytes: int, point: int) -> None:
    """What a match takes from disk has to fit with the windows of two blocks, or of the first."""
    driver = Driver(SLIDING, cold=True)
    for stop in (4, 8, 12):
        driver.store(TEXT[:stop])
        driver.write_all()
    driver.forget_ram()
    driver.cache.resize(hot_bytes)
    assert driver.match(TEXT + "X").point == point


def test_what_another_row_has_pinned_needs_no_room_again(restarted: Driver) -> None:
    """Of a shared head only the rest has to be found room for."""
    restarted.cache.resize(90)
    first = restarted.match("abcdX")
    restarted.cache.pin(first)
    restarted.load(first, "abcdX")
    assert restarted.match("abcdefghX").point == 8  # 40 pinned, and 50 to be read
    restarted.cache.resize(89)
    assert restarted.match("abcdefghX").point == 4


def test_reads_under_way_and_pins_are_no_room_for_others(restarted: Driver) -> None:
    """What is promised to one row is not promised to another."""
    driver = restarted
    driver.store("12345678")
    driver.write_all()
    driver.forget_ram()
    driver.cache.resize(150)
    begin(driver, driver.match("abcdX"), "abcdX")
    assert driver.match("12345678X").point == 8
    begin(driver, driver.match("1234X"), "1234X")
    assert driver.match(TEXT).point == 8  # "abcd" is on its way, one more fits


def test_a_read_that_finds_no_room_is_refused_and_stays_on_disk(restarted: Driver) -> None:
    """Pins that came meanwhile are kept; the row's next match sees how little room there is."""
    driver = restarted
    driver.cache.resize(90)
    match = driver.match("abcdX")
    begin(driver, match, "abcdX")
    driver.store("12345678")
    pinned = driver.match("12345678X")
    driver.cache.pin(pinned)
    changes = driver.cache.loaded(match.loads[0], 40, now=0.0)
    assert (changes.stored, changes.refused) == (False, "no room")
    match = driver.match("abcdX")
    assert (match.point, match.loads, match.why_not_more) == (0, (), "no room in RAM")
    driver.keep(driver.cache.unpin(pinned))
    assert len(driver.match("abcdX").loads) == 1


def test_a_read_evicts_even_what_was_used(restarted: Driver) -> None:
    """Somebody waits for it: it is worth more than what somebody used before."""
    restarted.cache.resize(60)
    restarted.store("1234")
    restarted.use("1234X")
    restarted.load(restarted.match("abcdX"), "abcdX")
    assert list(restarted.ram.values()) == ["kv abcd"]


def test_pins_hold_what_is_still_being_read(restarted: Driver) -> None:
    """What a waiting row has pinned stays from the moment it arrives."""
    match = restarted.match("abcdX")
    restarted.cache.resize(60)
    restarted.cache.pin(match)
    restarted.load(match, "abcdX")
    assert restarted.store("1234") == []
    assert restarted.cache.stats().pinned_bytes == 40
    restarted.keep(restarted.cache.unpin(match))
    assert restarted.store("1234") == ["kv abcd"]


def test_a_read_of_what_was_computed_meanwhile_changes_nothing(restarted: Driver) -> None:
    """The entry in RAM stays, the array read is to be dropped."""
    match = restarted.match("abcdX")
    restarted.store("abcd")
    begin(restarted, match, "abcdX")
    changes = restarted.cache.loaded(match.loads[0], 40, now=0.0)
    assert (changes.stored, changes.refused) == (False, "already held")


def test_a_window_file_may_hold_less_than_its_block() -> None:
    """What a listing does not tell, the read does; it is remembered."""
    driver = Driver(SLIDING, cold=True)
    text = "abcdefgh"
    for cut in driver.missing(text):
        driver.put(cut, text, held=1 if (cut.kind, cut.start) == ("window", 0) else None)
    driver.write_all()
    driver.forget_ram()
    match = driver.match(text)  # of the last block in part: 7 needs [2, 7)
    assert match.point == 7
    begin(driver, match, text)
    for key in match.loads:
        held = 1 if driver.disk[key] == "window abcd" else None
        driver.keep(driver.cache.loaded(key, 40, now=0.0, held=held), key, driver.disk[key])
    assert driver.match(text).point == 0
    driver.cache.resize(0)
    driver.cache.resize(10_000)
    assert driver.match(text).point == 0
    assert driver.match("abcdefghX").point == 8  # needs [3, 8)


def test_what_the_janitor_removed_is_not_asked_for(restarted: Driver) -> None:
    """A file that went is a miss, by its name; what is in RAM too is not touched."""
    restarted.load(restarted.match("abcdX"), "abcdX")
    for key in list(restarted.disk):
        restarted.cache.cold_gone(key)
    match = restarted.match(TEXT)
    assert (match.point, match.why_not_more) == (4, "evicted")
