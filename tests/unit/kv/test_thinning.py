"""What a conversation has outgrown goes first: points, windows, tails."""

from __future__ import annotations

from omlxd.kv.thinning import KEPT_POINTS
from tests.unit.kv.build import FULL, HYBRID, MIXED, RECURRENT, SLIDING, WINDOWED, Driver

LONG = "aaaabbbbccccddddeeeeffffgggg"
BLOCKS = 7


def grow(driver: Driver, text: str = LONG) -> None:
    """A row that stops at every boundary, as in decode."""
    for stop in range(4, len(text) + 1, 4):
        driver.store(text[:stop])


def going(driver: Driver, count: int) -> list[str]:
    """What goes, one shrink of the budget by one byte after another."""
    gone: list[str] = []
    while len(gone) < count:
        gone += driver.keep(driver.cache.resize(driver.cache.stats().hot_bytes - 1))
    return gone


def test_of_a_path_the_newest_points_are_kept() -> None:
    """Older ones that nobody used go before everything else."""
    driver = Driver(HYBRID)
    driver.store("0000")  # older than all, and of another conversation
    grow(driver)
    assert KEPT_POINTS == 4
    assert going(driver, 5) == [
        *("point aaaa", "point bbbb", "point cccc"),
        *("kv 0000", "point 0000"),
    ]


def test_a_point_that_was_used_is_kept() -> None:
    """It is not among the spent, though four newer ones came."""
    driver = Driver(HYBRID)
    driver.store("aaaa")
    driver.use("aaaaX")
    grow(driver)
    assert going(driver, 3)[:3] == ["point bbbb", "point cccc", "kv gggg"]


def test_of_points_used_once_the_newest_are_kept() -> None:
    """A long conversation uses each of its ends once: those are thinned as well."""
    driver = Driver(HYBRID)
    for stop in range(4, len(LONG) + 1, 4):
        driver.store(LONG[:stop])
        driver.use(LONG[:stop] + "X")
    grow(driver, LONG + "hhhh")
    assert going(driver, 4)[:3] == ["point aaaa", "point bbbb", "point cccc"]


def test_a_point_used_twice_is_where_conversations_part() -> None:
    """It is never spent, however many newer ones come."""
    driver = Driver(HYBRID)
    driver.store("aaaa")
    driver.use("aaaaX")
    driver.use("aaaaY")
    for stop in range(8, len(LONG) + 1, 4):
        driver.store(LONG[:stop])
        driver.use(LONG[:stop] + "X")
    grow(driver, LONG + "hhhh")
    assert going(driver, 2) == ["point bbbb", "point cccc"]


def test_points_of_tails_count_too() -> None:
    """The end of a prompt lies under its last boundary, and is older than the reply's blocks."""
    driver = Driver(HYBRID)
    driver.store("aaaab")  # a prompt's end
    grow(driver)
    assert going(driver, 4) == ["point aaaa", "point b", "point bbbb", "point cccc"]


def test_other_conversations_are_left_alone() -> None:
    """A path thins its own points, not those of a branch."""
    driver = Driver(HYBRID)
    driver.store("aaaaXXXX")
    grow(driver)
    assert "point XXXX" not in going(driver, 3)


def test_points_are_thinned_without_blocks_between_them() -> None:
    """All-recurrent models keep points alone, with gaps, and thin them all the same."""
    driver = Driver(RECURRENT)
    text = LONG * 4
    for stop in range(8, len(text) + 1, 8):
        driver.store(text[:stop])
    kept = (len(text) // 8) - KEPT_POINTS
    assert len(going(driver, kept)) == kept
    assert driver.match(text[: 8 * kept] + "X").point == 0
    assert driver.match(text[: 8 * (kept + 1)] + "X").point == 8 * (kept + 1)


def test_spent_entries_still_serve() -> None:
    """Until their room is needed they are restored from like any other, and kept from then on."""
    driver = Driver(HYBRID)
    grow(driver)
    assert driver.use("aaaabbbbX").point == 8
    assert going(driver, 2) == ["point aaaa", "point cccc"]


def test_windows_are_kept_within_reach_of_the_newest_end() -> None:
    """w - 1 tokens behind where the conversation stands; what lies further back goes first."""
    driver = Driver(SLIDING)
    driver.store("0000")
    grow(driver)
    # From 28 the reach is [23, 28): the last two blocks.
    windows = [f"window {letter * 4}" for letter in "abcde"]
    assert going(driver, 7) == [*windows, "kv 0000", "window 0000"]


def test_windows_are_kept_within_reach_of_tails() -> None:
    """The end of a prompt is a restore point as long as its tail is there."""
    driver = Driver(SLIDING)
    driver.store("aaaabbbbccccd")
    grow(driver)
    # From 13 the reach is [8, 13): "cccc", and "d" or what has come in its place, "dddd".
    assert going(driver, 3) == ["window aaaa", "window bbbb", "window eeee"]


def test_windows_are_kept_within_reach_of_kept_points() -> None:
    """With recurrent layers it is the points that count."""
    driver = Driver(MIXED)
    grow(driver)
    # Points kept: 16, 20, 24, 28. From 16 the reach is [11, 16).
    assert sorted(going(driver, 5)) == [
        *("point aaaa", "point bbbb", "point cccc"),
        *("window aaaa", "window bbbb"),
    ]


def test_windows_that_were_used_are_kept() -> None:
    """What a later request restored from is not spent."""
    driver = Driver(WINDOWED)
    grow(driver, LONG[:8])
    driver.use(LONG[:8] + "X")
    grow(driver)
    gone = going(driver, 3)
    assert gone == ["window cccc", "window dddd", "window eeee"]


def test_tails_that_a_longer_block_holds_go_first() -> None:
    """Where all layers keep every token, a tail is of no more use once the row has gone on."""
    driver = Driver(FULL)
    driver.store("aaaab")
    driver.store("aaaabb")
    driver.store("aaaaX")
    grow(driver)
    assert going(driver, 2) == ["kv b", "kv bb"]
    assert "kv X" in driver.ram.values()


def test_spent_entries_are_not_written() -> None:
    """What was thinned before it reached the disk is counted, and written when it is used."""
    driver = Driver(HYBRID, cold=True)
    grow(driver)
    counts = driver.cache.stats()
    assert counts.lost == {"superseded": 3}
    assert len(driver.write_all()) == BLOCKS + KEPT_POINTS
    driver.use("aaaabbbbX")
    assert driver.write_all() == ["point bbbb"]


def test_a_write_that_fails_after_the_conversation_moved_on_is_not_tried_again() -> None:
    """A point that was spent while it was being written is lost by what the disk said."""
    driver = Driver(HYBRID, cold=True)
    driver.store("aaaa")
    driver.write_all()
    grow(driver, LONG[:8])
    keys = driver.cache.writes(1_000)
    grow(driver)
    for key in keys:
        driver.cache.write_failed(key, "busy")
    counts = driver.cache.stats()
    assert counts.write_retries == {"busy": 1}
    assert counts.lost == {"superseded": 1, "busy": 1}


def test_a_spent_window_is_no_room_for_its_longer_piece() -> None:
    """Replacing a spent piece while RAM is full replaces it, and counts its bytes once."""
    driver = Driver(SLIDING)
    driver.store("0000")
    (cut,) = (cut for cut in driver.missing("aaaa") if cut.kind == "window")
    driver.store(LONG, kinds=["kv"])
    driver.put(cut, "aaaa", held=1)
    driver.store(LONG)
    driver.cache.resize(driver.cache.stats().hot_bytes)
    assert driver.put(cut, "aaaa", held=4) == ["kv 0000", "window 0000"]
    assert going(driver, 1)[0] != "window aaaa"


def test_a_spent_point_makes_room_for_its_own_blocks_keys() -> None:
    """In decode points come first; the block stays one although its only entry went."""
    driver = Driver(HYBRID)
    for stop in range(4, len(LONG) + 1, 4):
        driver.store(LONG[:stop], kinds=["point"])
    driver.cache.resize(driver.cache.stats().hot_bytes)
    assert driver.store("aaaa", kinds=["kv"]) == ["point aaaa"]
    assert "kv aaaa" in driver.ram.values()
