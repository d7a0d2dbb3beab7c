"""What goes to disk: in which order, how often it is tried, and what becomes of failures."""

from __future__ import annotations

from omlxd.kv.cold import MAX_WRITE_ATTEMPTS
from omlxd.kv.types import EntryKey
from tests.unit.kv.build import FULL, HYBRID, WINDOWED, Driver, letters

TEXT = "abcdefghijkl"


def test_full_blocks_are_written_oldest_first_and_tails_never() -> None:
    """Write-behind takes entries in the order they came."""
    driver = Driver(HYBRID, cold=True)
    driver.store("abcd")
    driver.store("abcdefghij")
    assert driver.write_all() == ["kv abcd", "point abcd", "kv efgh"]
    assert driver.write_all() == []


def test_what_is_in_flight_is_bounded() -> None:
    """Entries are handed out up to the bound, and the rest when those are done."""
    driver = Driver(FULL, cold=True)
    driver.store(TEXT)
    first = driver.cache.writes(80)
    assert driver.names(first) == ["kv abcd", "kv efgh"]
    assert driver.cache.writes(80) == ()
    assert driver.cache.stats().writing_bytes == 80
    driver.cache.written(first[0], 44)
    assert driver.names(driver.cache.writes(80)) == ["kv ijkl"]


def test_an_entry_larger_than_the_bound_is_written_alone() -> None:
    """A bound smaller than one entry does not stop the writes."""
    driver = Driver(FULL, cold=True)
    driver.store(TEXT)
    (key,) = driver.cache.writes(1)
    assert driver.cache.writes(1) == ()
    driver.cache.written(key, 44)
    assert len(driver.cache.writes(1)) == 1


def test_what_is_written_may_leave_ram_and_is_found_on_disk() -> None:
    """Nothing is lost when RAM is taken away after the write."""
    driver = Driver(FULL, cold=True)
    driver.store(TEXT)
    driver.write_all()
    driver.keep(driver.cache.resize(0))
    driver.cache.resize(1_000)
    assert driver.match(TEXT).point == 11
    assert driver.cache.stats().lost == {}


def test_what_has_to_go_before_it_is_written_is_counted() -> None:
    """A dirty entry that leaves RAM is lost; one that is being written is not."""
    driver = Driver(FULL, cold=True)
    driver.store("abcdefgh")
    (key,) = driver.cache.writes(1)
    driver.keep(driver.cache.resize(0))
    assert driver.cache.stats().lost == {"evicted before it was written": 1}
    assert driver.cache.writes(1_000) == ()
    driver.cache.written(key, 50)
    driver.cache.resize(1_000)
    assert len(driver.match("abcdX").loads) == 1


def fail(driver: Driver, times: int) -> list[EntryKey]:
    failed = []
    for _ in range(times):
        (key,) = driver.cache.writes(1_000)
        driver.cache.write_failed(key, "disk full")
        driver.cache.check_integrity()
        failed.append(key)
    return failed


def test_a_failed_write_is_tried_again_a_few_times() -> None:
    """Then it is counted as lost; the copy in RAM serves on, and using it asks for no write."""
    driver = Driver(FULL, cold=True)
    driver.store("abcd")
    fail(driver, MAX_WRITE_ATTEMPTS)
    counts = driver.cache.stats()
    assert counts.write_retries == {"disk full": MAX_WRITE_ATTEMPTS - 1}
    assert counts.lost == {"disk full": 1}
    assert driver.use("abcdX").point == 4
    assert driver.cache.writes(1_000) == ()


def test_a_write_that_succeeds_at_last_is_on_disk() -> None:
    """One failure costs one retry and nothing else."""
    driver = Driver(FULL, cold=True)
    driver.store("abcd")
    fail(driver, MAX_WRITE_ATTEMPTS - 1)
    assert driver.write_all() == ["kv abcd"]
    assert driver.cache.stats().lost == {}


def test_a_failed_write_of_what_has_left_ram_is_lost() -> None:
    """There is nothing to try again with."""
    driver = Driver(FULL, cold=True)
    driver.store("abcd")
    (key,) = driver.cache.writes(1_000)
    driver.keep(driver.cache.resize(0))
    driver.cache.write_failed(key, "disk full")
    driver.cache.check_integrity()
    assert driver.cache.stats().lost == {"disk full": 1}


def test_a_longer_window_is_written_over_the_shorter_one() -> None:
    """Also when it comes while the shorter one is being written; a shorter one never is."""
    driver = Driver(WINDOWED, cold=True)
    (cut,) = driver.missing("abcd")
    driver.put(cut, "abcd", held=2)
    (key,) = driver.cache.writes(1_000)
    driver.put(cut, "abcd", held=4)
    assert driver.cache.writes(1_000) == ()  # one write at a time of one entry
    driver.cache.written(key, 50)
    assert driver.cache.writes(1_000) == (key,)
    driver.cache.written(key, 90)
    driver.keep(driver.cache.resize(0))
    driver.cache.resize(1_000)
    driver.put(cut, "abcd", held=3)
    assert driver.cache.writes(1_000) == ()
    assert driver.cache.stats().cold_bytes == 90


def test_a_longer_window_than_the_one_on_disk_is_written() -> None:
    """What was written as a short piece is written again when it has grown."""
    driver = Driver(WINDOWED, cold=True)
    (cut,) = driver.missing("abcd")
    driver.put(cut, "abcd", held=2)
    assert driver.write_all() == ["window abcd"]
    driver.put(cut, "abcd", held=4)
    assert driver.write_all() == ["window abcd"]
    assert driver.write_all() == []


def test_a_failed_short_window_is_written_as_the_longer_one() -> None:
    """What is tried again is what is in RAM by then."""
    driver = Driver(WINDOWED, cold=True)
    (cut,) = driver.missing("abcd")
    driver.put(cut, "abcd", held=2)
    (key,) = driver.cache.writes(1_000)
    driver.put(cut, "abcd", held=4)
    driver.cache.write_failed(key, "busy")
    assert driver.cache.stats().dirty_bytes == 40
    assert driver.cache.writes(1_000) == (key,)


# ---------------------------------------------------------------------- on and off


def test_without_a_cold_tier_nothing_waits_to_be_written() -> None:
    """A cache starts without one, and is none the worse."""
    driver = Driver(FULL)
    driver.store(TEXT)
    assert driver.cache.writes(1_000) == ()
    assert driver.cache.stats().dirty_entries == 0


def test_turned_on_it_takes_what_is_in_ram() -> None:
    """What was stored before is written now, but for what a listing shows to be there."""
    driver = Driver(FULL)
    driver.store("abcdefghij")
    driver.cache.set_cold(True)
    driver.cache.cold_known([(driver.keys("abcd").name(0, "kv"), 50)])
    assert driver.write_all() == ["kv efgh", "kv ij"]
    assert driver.cache.stats().cold_entries == 3


def test_turned_off_it_is_forgotten_and_ram_serves_on() -> None:
    """Nothing waits, nothing on disk is promised, and reads under way still arrive."""
    driver = Driver(FULL, cold=True)
    driver.store(TEXT)
    driver.write_all()
    driver.forget_ram()
    match = driver.match("abcdX")
    driver.cache.begin_load(match, letters("abcdX"), driver.keys("abcdX"))
    driver.store("1234")
    driver.cache.set_cold(False)
    driver.cache.cold_known([(match.loads[0], 50)])  # a listing that was under way
    counts = driver.cache.stats()
    assert (counts.cold_entries, counts.dirty_entries, counts.lost) == (0, 0, {})
    driver.keep(driver.cache.loaded(match.loads[0], 40, now=0.0), match.loads[0], "kv abcd")
    assert driver.match(TEXT).point == 4
    assert driver.match("1234X").point == 4


def test_turned_off_during_a_write_it_takes_the_result() -> None:
    """Success and failure are accounted for, and neither brings anything back."""
    driver = Driver(FULL, cold=True)
    driver.store("abcdefgh")
    one, two = driver.cache.writes(1_000)
    driver.cache.set_cold(False)
    driver.cache.written(one, 50)
    driver.cache.write_failed(two, "gone")
    driver.cache.check_integrity()
    counts = driver.cache.stats()
    assert (counts.cold_entries, counts.written, counts.lost) == (0, 1, {"gone": 1})


def test_a_listing_does_not_undo_what_is_known_better() -> None:
    """What was written since, or is being written, is not taken from the listing."""
    driver = Driver(FULL, cold=True)
    driver.store("abcdefgh")
    one, two = driver.cache.writes(1_000)
    driver.cache.written(one, 70)
    driver.cache.cold_known([(one, 50), (two, 50)])
    assert driver.cache.stats().cold_bytes == 70
    driver.cache.written(two, 70)
    assert driver.cache.stats().cold_bytes == 140
