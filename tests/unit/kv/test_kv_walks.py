"""Random walks against a naive model: a match is exactly what its entries allow, and no more."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from omlxd.kv.cache import KvCache
from omlxd.kv.chain_keys import ChainKeys
from omlxd.kv.plans import Changes, Cut, Match
from omlxd.kv.types import EntryKey, EntryKind, Layout
from tests.unit.kv.build import LAYOUTS, B, weight

LINE = [1, 1, 2, 1, 1, 1, 1, 2, 2, 1, 2, 2, 1, 2, 1, 1, 2, 1]  # what conversations have in common
MOST_TOKENS = 24
REST = st.one_of(st.just([]), st.lists(st.integers(1, 2), max_size=6))
TOKENS = st.builds(
    lambda shared, rest: LINE[:shared] + rest or [1],
    st.sampled_from([0, 3, 4, 5, 8, 8, 11, 12, 12, 13, 16, 18]),
    REST,
)


@dataclass(frozen=True)
class Stored:
    """What an entry was cut from."""

    kind: EntryKind
    path: tuple[int, ...]  # all tokens up to the block's end
    start: int

    @property
    def is_full(self) -> bool:
        return len(self.path) - self.start == B


class Walk(RuleBasedStateMachine):
    @initialize(
        layout=st.sampled_from(sorted(LAYOUTS)),
        hot=st.sampled_from([0, 300, 1_000, 3_000, 3_000]),
        cold=st.sampled_from([True, True, False]),
    )
    def start(self, layout: str, hot: int, cold: bool) -> None:
        self.layout: Layout = LAYOUTS[layout]
        self.cold = cold
        self.what: dict[EntryKey, Stored] = {}  # all that ever was, by name
        self.disk: dict[EntryKey, int] = {}
        self.rows: list[list[int]] = []  # that were stored
        self.now = 0.0
        self.begin(hot)

    def begin(self, hot_bytes: int) -> None:
        """An engine with nothing in RAM."""
        self.cache = KvCache(self.layout, b"walk", hot_bytes=hot_bytes)
        self.cache.set_cold(self.cold)
        self.ram: dict[EntryKey, int] = {}  # tokens held
        self.believed: dict[EntryKey, int] = {}  # of the disk, as far as the core can know
        self.writing: dict[EntryKey, int] = {}
        self.loading: dict[EntryKey, int] = {}
        self.pinned: list[Match] = []

    # ------------------------------------------------------------------ what the engine does

    @rule(data=st.data(), at_point=st.booleans(), kv=st.booleans())
    def store(self, data: st.DataObject, at_point: bool, kv: bool) -> None:
        """A row computes some of its tokens, and is cut at a few places."""
        tokens = self.next_row(data)
        keys = self.cache.chain_keys()
        stops = data.draw(st.sets(st.integers(1, len(tokens)), min_size=1, max_size=3))
        for stop in sorted(stops):
            for cut in self.cache.missing(tokens, keys, computed=stop, at_point=at_point):
                held = data.draw(st.integers(1, cut.ref.tokens)) if cut.kind == "window" else None
                if kv or cut.kind != "kv":
                    self.put(cut, tokens, held)
            if at_point:
                self.leave_behind(tokens, keys, prompt=stop)

    @rule(data=st.data(), then=st.sampled_from(["", "settle", "restart"]))
    def converse(self, data: st.DataObject, then: str) -> None:
        """A whole turn, as an engine takes it; a walk may leave out most other rules."""
        tokens = self.next_row(data)
        keys = self.cache.chain_keys()
        prompt = data.draw(st.integers(1, len(tokens)))
        self.look_up(tokens[:prompt], wait=True)
        self.end_all_loads()
        self.look_up(tokens[:prompt], wait=False)
        for stop in (prompt, len(tokens)):
            for cut in self.cache.missing(tokens, keys, computed=stop, at_point=True):
                self.put(cut, tokens, cut.ref.tokens if cut.kind == "window" else None)
            self.leave_behind(tokens, keys, prompt=prompt)
        if then:
            self.settle()
        if then == "restart":
            self.restart()

    def put(self, cut: Cut, tokens: list[int], held: int | None) -> None:
        self.what[cut.key] = Stored(cut.kind, tuple(tokens[: cut.stop]), cut.start)
        changes = self.cache.put(cut, weight(cut, held), request_id="r", now=self.now, held=held)
        self.apply(changes, cut.key, held or B)

    def leave_behind(self, tokens: list[int], keys: ChainKeys, *, prompt: int) -> None:
        """Only tails on disk go that this very row has come by before its prompt's end."""
        for key in self.cache.tails_left_behind(tokens, keys, prompt_tokens=prompt):
            stored = self.what[key]
            assert not stored.is_full
            assert len(stored.path) < prompt - 1
            assert list(stored.path) == tokens[: len(stored.path)]
            del self.disk[key], self.believed[key]

    def next_row(self, data: st.DataObject) -> list[int]:
        """A new one, or one that goes on from what was stored."""
        if not self.rows or data.draw(st.integers(0, 3)) == 0:
            row = data.draw(TOKENS)
        else:
            row = (data.draw(st.sampled_from(self.rows)) + data.draw(REST))[:MOST_TOKENS]
        self.rows.append(row)
        return row

    @rule(data=st.data(), wait=st.booleans())
    def ask(self, data: st.DataObject, wait: bool) -> None:
        """A request looks for its prefix; it goes on from it, or starts to read."""
        self.look_up(self.next_row(data), wait=wait)

    def look_up(self, tokens: list[int], *, wait: bool) -> None:
        keys = self.cache.chain_keys()
        match = self.cache.match(tokens, keys, hot_only=not wait)
        self.check(match, tokens, hot_only=not wait)
        if match.is_ready:
            self.cache.pin(match)
            self.cache.touch(match, self.now)
            self.apply(self.cache.unpin(match))
            return
        self.cache.pin(match)
        self.pinned.append(match)
        self.cache.begin_load(match, tokens, keys)
        self.loading.update({key: self.disk[key] for key in match.loads})

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """A request that waits is cancelled, or has what it needs."""
        match = self.pinned.pop(data.draw(st.integers(0, len(self.pinned) - 1)))
        self.apply(self.cache.unpin(match))

    @rule(seconds=st.sampled_from([1.0, 2_000.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(what=st.sampled_from(["resize", "clear", "turn", "restart"]), data=st.data())
    def upset(self, what: str, data: st.DataObject) -> None:
        """One rule for all that undoes much, so that walks come far."""
        match what:
            case "resize":
                self.apply(self.cache.resize(data.draw(st.integers(0, 3_000))))
            case "clear":
                self.apply(self.cache.clear())
                self.disk.clear()
                self.believed.clear()
            case "turn":
                self.turn()
            case _:
                self.crash(data)

    # ------------------------------------------------------------------ what the disk does

    @precondition(lambda self: self.loading)
    @rule(data=st.data(), works=st.booleans())
    def end_a_load(self, data: st.DataObject, works: bool) -> None:
        self.end_load(data.draw(st.sampled_from(sorted(self.loading))), works=works)

    def end_load(self, key: EntryKey, *, works: bool) -> None:
        held = self.loading.pop(key)
        if not works:
            self.cache.load_failed(key, "checksum")
            self.disk.pop(key, None)
            self.believed.pop(key, None)
            return
        stored = self.what[key]
        tokens = held if stored.kind == "window" else len(stored.path) - stored.start
        nbytes = 100 if stored.kind == "point" else tokens * 10
        if key in self.believed and stored.kind == "window":
            self.believed[key] = held
        told = held if stored.kind == "window" else None
        self.apply(self.cache.loaded(key, nbytes, now=self.now, held=told), key, held)

    def end_all_loads(self) -> None:
        for key in sorted(self.loading):
            self.end_load(key, works=True)

    @rule(max_bytes=st.integers(1, 200))
    def begin_writes(self, max_bytes: int) -> None:
        busy = bool(self.writing)
        keys = self.cache.writes(max_bytes)
        assert len(set(keys)) == len(keys)
        for key in keys:
            assert key not in self.writing
            assert self.what[key].is_full or not self.layout.recurrent
            self.writing[key] = self.ram[key]  # KeyError: asked to write what is not in RAM
        assert self.cache.stats().writing_bytes <= max_bytes or len(keys) <= (not busy)

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), works=st.booleans())
    def end_write(self, data: st.DataObject, works: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.writing)))
        held = self.writing.pop(key)
        if not works:
            self.cache.write_failed(key, "disk full")
            return
        self.cache.written(key, 30)
        if self.cold:
            self.disk[key] = self.believed[key] = held

    def settle(self) -> None:
        """All that waits is written."""
        while keys := (*self.writing, *self.cache.writes(1_000)):
            for key in keys:
                held = self.writing.pop(key, None) or self.ram[key]
                self.cache.written(key, 30)
                if self.cold:
                    self.disk[key] = self.believed[key] = held

    @precondition(lambda self: self.disk)
    @rule(data=st.data())
    def remove_file(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.disk)))
        del self.disk[key]
        self.believed.pop(key, None)
        self.cache.cold_gone(key)

    def crash(self, data: st.DataObject) -> None:
        """The engine is killed: of what was being written some is there."""
        if self.writing and self.cold:
            done = data.draw(st.sets(st.sampled_from(sorted(self.writing))))
            self.disk.update({key: self.writing[key] for key in done})
        self.restart()

    def restart(self) -> None:
        """A new engine knows what it finds on disk."""
        self.begin(3_000)
        if self.cold:
            self.list_disk()

    def turn(self) -> None:
        """The cold tier goes, or comes back with the files that are still there."""
        self.cold = not self.cold
        self.cache.set_cold(self.cold)
        self.believed.clear()
        if self.cold:
            self.list_disk()

    def list_disk(self) -> None:
        listed = {key: 30 for key in self.disk if key not in self.writing}
        self.cache.cold_known(listed.items())
        self.believed = dict.fromkeys(listed, B)

    # ------------------------------------------------------------------ the naive model

    def apply(self, changes: Changes, key: EntryKey | None = None, held: int = 0) -> None:
        pinned = {each for match in self.pinned for each in match.keys}
        for each in changes.evict:
            assert each not in pinned
            del self.ram[each]  # KeyError: evicted what was not there
        if changes.stored:
            assert key is not None
            self.ram[key] = held
        assert changes.stored == (key is not None and changes.refused == "")

    def restorable(self, tokens: list[int], *, hot_only: bool) -> int:
        """The longest prefix by trying all lengths against all that is held."""
        ram = {self.what[key]: held for key, held in self.ram.items()}
        disk = {} if hot_only else {self.what[key]: held for key, held in self.believed.items()}
        row = tuple(tokens)
        end = len(row) // B * B
        if self.layout.grows:
            stops = range(B, len(row) + 1, B)
            lost = (s - B for s in stops if Stored("kv", row[:s], s - B) not in {*ram, *disk})
            end = next(lost, end)
        else:
            there = [each.path for each in (*ram, *disk) if each.is_full]
            end = max((len(p) for p in there if row[: len(p)] == p), default=0)
        for point in range(len(tokens) - 1, 0, -1):
            start = (point - 1) // B * B
            for last in {each.path for each in (*ram, *disk) if each.start == start}:
                # Of files nobody knows the tokens: they serve a row that has all of them, tails
                # where its path ends.
                is_seen = len(last) % B == 0 or start == end
                own = disk if row[: len(last)] == last and is_seen else {}
                there = {each: held for each, held in disk.items() if each.start < start}
                there |= own | ram
                if last[:point] == row[:point] and self.serves(there, last, point):
                    return point
        return 0

    def serves(self, there: dict[Stored, int], last: tuple[int, ...], point: int) -> bool:
        """Whether a row goes on from `point`, in the block that ends `last`."""
        if len(last) < point:
            return False
        layout = self.layout
        blocks = [last[: at + B] for at in range(0, point, B)]

        def entry(kind: EntryKind, path: tuple[int, ...]) -> int:
            return there.get(Stored(kind, path, (len(path) - 1) // B * B), 0)

        if layout.grows and not all(entry("kv", path) for path in blocks):
            return False
        if layout.recurrent and not (len(last) == point and entry("point", last)):
            return False
        low = max(0, point - layout.window + 1) if layout.window else point
        return all(
            token >= len(blocks[token // B]) - entry("window", blocks[token // B])
            for token in range(low, point)
        )

    def check(self, match: Match, tokens: list[int], *, hot_only: bool) -> None:
        self.check_run(match, tokens)
        best = self.restorable(tokens, hot_only=hot_only)
        if match.why_not_more == "no room in RAM":
            assert match.point < best
        else:
            assert match.point == best
        loads, pending = set(match.loads), set(match.pending)
        assert not loads & pending
        for key in match.keys:
            if key in loads:
                assert key in self.disk
                assert key not in self.loading
                assert key not in self.ram
            elif key in pending:
                assert key in self.loading
            else:
                assert key in self.ram
        assert match.ram_tokens + match.ssd_tokens == match.point

    def check_run(self, match: Match, tokens: list[int]) -> None:
        """Every entry was cut from these very tokens, and nothing the join needs is left out."""
        position = 0
        for block in match.run:
            assert block.start == position
            position += block.tokens
            for kind, key in (("kv", block.kv), ("window", block.window), ("point", block.point)):
                if key is not None:
                    stored = self.what[key]
                    shared = min(match.point, len(stored.path))
                    assert (stored.kind, stored.start) == (kind, block.start)
                    assert list(stored.path[:shared]) == tokens[:shared]
                    assert len(stored.path) == position
        assert match.point <= position < match.point + B
        assert match.point < len(tokens)
        if match.point:
            assert all((block.kv is not None) == self.layout.grows for block in match.run)
            low = max(0, match.point - self.layout.window + 1)
            reach = [block for block in match.run if block.start + block.tokens > low]
            assert all((block.window is not None) == (self.layout.window > 0) for block in reach)
            points = [block.point is not None for block in match.run]
            assert points == [False] * (len(points) - 1) + [self.layout.recurrent]

    @invariant()
    def holds(self) -> None:
        self.cache.check_integrity()
        counts = self.cache.stats()
        assert sum(counts.hot_entries.values()) == len(self.ram)
        assert counts.cold_entries == len(self.believed)

    def teardown(self) -> None:
        """With all pins gone the budget holds, and an empty budget empties RAM."""
        for match in self.pinned:
            self.apply(self.cache.unpin(match))
        self.pinned.clear()
        counts = self.cache.stats()
        assert counts.hot_bytes <= counts.hot_budget_bytes
        assert counts.pinned_bytes == 0
        self.apply(self.cache.resize(0))
        assert not self.ram
        self.cache.check_integrity()


Walk.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestWalks = Walk.TestCase
