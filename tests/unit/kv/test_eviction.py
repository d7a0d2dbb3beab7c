"""Who goes first when RAM is short, and who never does. A block of four tokens weighs 40 bytes."""

from __future__ import annotations

from omlxd.kv.chain_keys import ChainKeys
from omlxd.kv.entries import Node
from omlxd.kv.index import Index
from omlxd.kv.order import PROTECTED_IDLE_S, EvictionOrder
from omlxd.kv.types import root_hash
from tests.unit.kv.build import FULL, HYBRID, RECURRENT, B, Driver, letters


def held(driver: Driver) -> list[str]:
    return sorted(driver.ram.values())


def test_a_path_goes_from_its_end() -> None:
    """The oldest conversation goes first, tail before head."""
    driver = Driver(FULL, hot_bytes=240)
    driver.store("abcdefghijkl")
    driver.store("ABCDEFGHIJKL")
    assert driver.store("1234") == ["kv ijkl"]
    assert driver.store("12345678") == ["kv efgh"]
    assert driver.store("123456789abc") == ["kv abcd"]
    assert driver.store("123456789abcdefg") == ["kv IJKL"]


def test_a_shared_head_stays_while_anything_hangs_on_it() -> None:
    """A head that is older than all others is kept for the younger conversation on it."""
    driver = Driver(FULL, hot_bytes=160)
    driver.store("headaaaa")
    driver.store("XXXX")
    driver.store("headbbbb")  # the head was stored first, the branch last
    assert driver.store("YYYY") == ["kv aaaa"]
    assert driver.store("ZZZZ") == ["kv XXXX"]
    assert driver.store("0000") == ["kv bbbb"]
    assert driver.store("1111") == ["kv head"]


def test_what_was_used_outlives_what_was_only_stored() -> None:
    """A used path stays although newer ones came."""
    driver = Driver(FULL, hot_bytes=120)
    driver.store("abcd")
    driver.use("abcdX")
    driver.store("1111")
    driver.store("2222")
    assert driver.store("3333") == ["kv 1111"]
    assert driver.store("4444") == ["kv 2222"]
    assert "kv abcd" in held(driver)


def test_a_huge_prompt_does_not_flush_what_turns_have_used() -> None:
    """A prompt larger than the budget is kept by its head, beside the prefix that was used."""
    driver = Driver(FULL, hot_bytes=400)
    driver.store("systemprompt")
    for turn in "123":
        driver.use("systemprompt" + turn)
    driver.store("".join(chr(0x4E00 + number) for number in range(400)))
    assert driver.match("systemprompt!").point == 12
    assert driver.cache.stats().hot_bytes == 400
    assert driver.cache.stats().refused["no room"] == 93  # 100 blocks, of which 7 fit


def test_protection_covers_a_share_of_the_budget() -> None:
    """Beyond four fifths, what was used longest ago is as good as new, its end first."""
    driver = Driver(FULL, hot_bytes=400)
    old, new = "aaaabbbbccccddddeeee", "AAAABBBBCCCCDDDDEEEE"
    for text in (old, new):
        driver.store(text)
        driver.use(text + "!")
    assert driver.cache.stats().protected_bytes == 320
    assert driver.store("0000") == ["kv eeee"]
    assert driver.store("1111") == ["kv dddd"]
    assert driver.store("2222") == ["kv 0000"]  # no more of the old one: it is protected


def test_protection_ends_when_nobody_comes_back() -> None:
    """What was used long ago makes room for what is new."""
    driver = Driver(FULL, hot_bytes=80)
    driver.store("abcd")
    driver.use("abcdX")
    driver.store("1111")
    driver.now = PROTECTED_IDLE_S
    assert driver.store("11112222") == []  # neither the protected one nor the head of its own path
    assert driver.cache.stats().refused["no room"] == 1
    driver.now += 1.0
    assert driver.store("11112222") == ["kv abcd"]


def test_what_is_pinned_stays_and_comes_free_again() -> None:
    """No entry goes while a match holds it; two matches hold it twice."""
    driver = Driver(FULL, hot_bytes=80)
    driver.store("abcdefgh")
    one, two = driver.match("abcdX"), driver.match("abcdefghX")
    driver.cache.pin(one)
    driver.cache.pin(two)
    assert driver.store("1111") == []
    assert driver.cache.stats().pinned_bytes == 80
    driver.keep(driver.cache.unpin(two))
    assert driver.cache.stats().pinned_bytes == 40
    assert driver.store("1111") == ["kv efgh"]
    assert driver.store("2222") == ["kv 1111"]
    driver.keep(driver.cache.unpin(one))
    assert driver.store("3333") == ["kv abcd"]


def test_an_entry_larger_than_the_budget_is_refused() -> None:
    """It moves nothing else out."""
    driver = Driver(FULL, hot_bytes=79)
    driver.store("1111")
    (cut,) = driver.missing("abcd")
    changes = driver.cache.put(cut, 80, request_id="r", now=0.0)
    assert (changes.stored, changes.refused) == (False, "larger than the budget")
    assert changes.evict == ()
    assert driver.match("abcdX").point == 0
    driver.cache.check_integrity()


def test_a_budget_of_nothing_holds_nothing() -> None:
    """With no RAM given every entry is refused and nothing breaks."""
    driver = Driver(HYBRID, hot_bytes=0)
    assert driver.store("abcdefgh") == []
    assert held(driver) == []
    assert driver.match("abcdefghX").why_not_more == "nothing stored"


def test_a_block_does_not_make_room_for_itself() -> None:
    """A path that fills the budget keeps its head when its next block comes."""
    driver = Driver(FULL, hot_bytes=80)
    assert driver.store("abcdefghijkl") == []
    assert held(driver) == ["kv abcd", "kv efgh"]


def test_a_blocks_entries_go_together() -> None:
    """Keys, values and state of a block leave at once."""
    driver = Driver(HYBRID, hot_bytes=280)
    driver.store("abcd")
    driver.store("1111")
    assert driver.store("2222") == ["kv abcd", "point abcd"]


def test_points_alone_go_by_age() -> None:
    """Without layers that grow no point hangs on another: the oldest goes, head or not."""
    driver = Driver(RECURRENT, hot_bytes=200)
    driver.store("abcd")
    driver.store("abcdefgh")
    assert driver.store("1111") == ["point abcd"]


def test_a_smaller_budget_is_kept_at_once() -> None:
    """Resizing evicts down to the new budget, used or not."""
    driver = Driver(FULL, hot_bytes=120)
    driver.store("abcdefgh")
    driver.use("abcdefghX")
    driver.store("1111")
    assert driver.keep(driver.cache.resize(50)) == ["kv 1111", "kv efgh"]
    assert driver.cache.stats().hot_bytes == 40
    assert driver.cache.stats().evicted == {"budget": 2}


def test_pins_may_exceed_a_lowered_budget_until_they_end() -> None:
    """What is pinned outlives the resize; the unpin that frees it evicts it."""
    driver = Driver(FULL, hot_bytes=120)
    driver.store("abcdefgh")
    match = driver.match("abcdX")
    driver.cache.pin(match)
    assert driver.keep(driver.cache.resize(10)) == ["kv efgh"]
    assert driver.cache.stats().hot_bytes == 40
    assert driver.keep(driver.cache.unpin(match)) == ["kv abcd"]
    assert driver.cache.stats().hot_bytes == 0


def test_clear_forgets_all_but_what_is_pinned() -> None:
    """Cleared entries are unknown afterwards, and not told to have been evicted."""
    driver = Driver(FULL, cold=True)
    driver.store("abcdefgh")
    driver.store("1111")
    driver.write_all()
    match = driver.match("abcdX")
    driver.cache.pin(match)
    gone = driver.keep(driver.cache.clear())
    assert sorted(gone) == ["kv 1111", "kv efgh"]
    assert driver.match("abcdefghX").point == 4
    assert driver.match("1111X").why_not_more == "diverged"
    assert driver.cache.stats().cold_entries == 0


def test_counts_tell_what_happened() -> None:
    """Hits, misses, tokens, stores and evictions are counted, each by its reason."""
    driver = Driver(HYBRID, hot_bytes=280)
    driver.cache.touch(driver.match("abcdX"), 0.0)
    driver.store("abcd")
    driver.use("abcdX")
    driver.cache.touch(driver.match("ZZZZ"), 0.0)
    driver.store("1111")
    driver.store("2222")
    counts = driver.cache.stats()
    assert counts.misses == {"nothing stored": 1, "diverged": 1}
    assert (counts.hits, counts.ram_tokens, counts.ssd_tokens) == (1, 4, 0)
    assert counts.stored == {"kv": 3, "point": 3}
    assert counts.evicted == {"room": 2}
    assert counts.hot_entries == {"kv": 2, "point": 2}
    assert (counts.hot_bytes, counts.hot_budget_bytes) == (280, 280)


def test_a_copy_of_the_counts_does_not_change() -> None:
    """What `stats` gave stays as it was."""
    driver = Driver(FULL)
    before = driver.cache.stats()
    driver.store("abcd")
    assert before.stored == {}


def test_behind_a_block_without_room_nothing_is_kept() -> None:
    """What lies behind a refused block is refused until that block is in RAM."""
    driver = Driver(HYBRID, hot_bytes=280)
    driver.store("abcdefgh", kinds=["kv"])
    text = "abcdefghijklmnop"
    row = driver.keys(text)

    def put_all() -> list[str]:
        cuts = driver.cache.missing(letters(text), row, computed=16, at_point=True)
        return [name for cut in cuts for name in driver.put(cut, text)]

    driver.cache.resize(80)
    assert put_all() == []
    assert held(driver) == ["kv abcd", "kv efgh"]
    driver.cache.resize(280)
    driver.store("abcdefghijkl", kinds=["kv"])  # by another row
    assert put_all() == []
    assert held(driver) == ["kv abcd", "kv efgh", "kv ijkl", "kv mnop", "point mnop"]


def test_a_tail_without_room_is_tried_again_with_its_point() -> None:
    """What was refused once is taken when there is room for it, state and all."""
    driver = Driver(HYBRID, hot_bytes=140)
    row = driver.keys("abcdef")
    for hot_bytes in (40, 60, 160):
        driver.cache.resize(hot_bytes)
        for cut in driver.cache.missing(letters("abcdef"), row, computed=6, at_point=True):
            driver.put(cut, "abcdef")
    assert held(driver) == ["kv abcd", "kv ef", "point ef"]
    assert driver.cache.stats().refused == {"no room": 2, "larger than the budget": 1}


def test_being_used_again_and_again_takes_no_memory() -> None:
    """The order of eviction forgets what no longer holds as fast as it comes."""
    index = Index()
    order = EvictionOrder(index.nodes, has_children=lambda block: False)
    tokens = letters("abcd")
    keys = ChainKeys(root_hash(b"namespace"), B)
    keys.extend(tokens)
    node = Node(keys.ref(tokens, 0, B), is_tail=False, donor=None)
    index.add(node)
    for turn in range(1_000):
        order.used(node, float(turn))
        order.check_integrity()
    assert len(order) < 100
    assert order.first(sparing=False) is node
