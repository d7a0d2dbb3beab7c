"""The tiered cache of one engine: what is where, what may be reused, what has to go.

The shell holds the arrays by EntryKey and does what is answered here. Its round for a request:
`match`; if that is not ready: `pin`, `begin_load`, read, `loaded` or `load_failed` for each, and
`match` again; then `pin`, `touch`, join the arrays, `unpin`. As the row runs: `missing`, cut,
`put` each. Beside it: `writes`, then `written` or `write_failed` for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy

from omlxd.kv import cuts
from omlxd.kv.chain_keys import NO_EXTRA, BlockRef, ChainKeys
from omlxd.kv.cold import ColdTier
from omlxd.kv.counts import CacheCounts
from omlxd.kv.disk_tails import DiskTails
from omlxd.kv.entries import Entry
from omlxd.kv.gone import Gone
from omlxd.kv.hot import HotTier
from omlxd.kv.index import Index
from omlxd.kv.integrity import check
from omlxd.kv.plans import Changes, Cut, Match, Refusal
from omlxd.kv.search import Search
from omlxd.kv.thinning import path_of, superseded
from omlxd.kv.tiers import Tiers
from omlxd.kv.types import EntryKey, EntryKind, Layout, root_hash
from omlxd.kv.why import why_not_more


class KvCache:
    """Owned by the engine's thread. Starts without a cold tier: see `set_cold`."""

    def __init__(self, layout: Layout, namespace: bytes, *, hot_bytes: int) -> None:
        assert layout.kinds, layout
        self._counts = CacheCounts()
        index = Index()
        hot = HotTier(layout, index, hot_bytes)
        self._tiers = Tiers(layout, index, hot, ColdTier(self._counts))
        self._gone = Gone()
        self._root = root_hash(namespace)
        self._disk_tails = DiskTails()

    # ------------------------------------------------------------------ reuse

    def chain_keys(self, extra: Mapping[int, bytes] = NO_EXTRA) -> ChainKeys:
        """The hashes of a new row, under this cache's namespace."""
        return ChainKeys(self._root, self._tiers.layout.block_tokens, extra)

    def match(self, tokens: Sequence[int], keys: ChainKeys, *, hot_only: bool = False) -> Match:
        """The longest prefix of `tokens` that can be restored, at most all but one.

        `hot_only` leaves out what would have to be read from disk.
        """
        search = Search(self._tiers, tokens, keys, hot_only=hot_only)
        best = search.deepest()
        why, diverged_at = why_not_more(search, self._gone, best.point)
        return Match(
            point=best.point,
            run=best.run,
            loads=best.loads,
            pending=best.pending,
            ram_tokens=best.point - best.ssd_tokens,
            ssd_tokens=best.ssd_tokens,
            donor=best.donor,
            diverged_at=diverged_at,
            why_not_more=why,
        )

    def pin(self, match: Match) -> None:
        """Its entries do not go, nor do those that are still being read once they are here."""
        self._tiers.hot.pin(match.keys)

    def unpin(self, match: Match) -> Changes:
        """Once for every `pin`. A budget that pins kept exceeded is kept again."""
        self._tiers.hot.unpin(match.keys)
        return self._keep_budget()

    def touch(self, match: Match, now: float) -> None:
        """A request goes on from this match, or has to start at 0: once per request."""
        assert match.is_ready
        if match.point == 0:
            self._counts.misses[match.why_not_more] += 1
            return
        self._counts.hits += 1
        self._counts.ram_tokens += match.ram_tokens
        self._counts.ssd_tokens += match.ssd_tokens
        hot = self._tiers.hot
        used = [[hot.entries[key] for key in block.keys] for block in reversed(match.run)]
        revived = [entry for entries in used for entry in entries if entry.is_spent]
        hot.use([entries for entries in used if entries], now)
        for entry in revived:
            self._want_on_disk(entry)

    # ------------------------------------------------------------------ storing

    def missing(
        self, tokens: Sequence[int], keys: ChainKeys, *, computed: int, at_point: bool
    ) -> tuple[Cut, ...]:
        """What a row should be cut for whose caches hold the first `computed` of `tokens`.

        In the order to `put` it. `at_point`: this is where a later request may go on (a prompt's
        end, a block's end, the end of a reply), so a tail and a state are worth keeping.
        """
        if keys.no_room_from is not None and self._has_kv(keys, keys.no_room_from):
            keys.no_room_from = None  # another row has stored it meanwhile
        return tuple(cuts.missing(self._tiers, tokens, keys, computed=computed, at_point=at_point))

    def put(
        self, cut: Cut, nbytes: int, *, request_id: str, now: float, held: int | None = None
    ) -> Changes:
        """Take in an entry that was cut. If it is not `stored`, its array is to be dropped.

        `held`: how many of the block's last tokens a window's piece has; None = all. Where there
        is no room for a block's keys and values, none is made for what lies behind it either.
        """
        if _is_cut_off(cut):
            return self._refuse("no room", [])
        entry, changes = self._insert(
            cut.ref, cut.kind, cut.key, nbytes=nbytes, held=held, now=now, sparing=True
        )
        if cut.kind == "kv" and changes.refused != "already held":
            cut.chain.no_room_from = cut.start if entry is None else None
        if entry is None:
            return changes
        if entry.node.donor is None:
            entry.node.donor = request_id
        self._counts.stored[cut.kind] += 1
        if cut.is_newest and cut.kind == self._tiers.layout.kinds[-1]:
            self._thin(cut)
        self._want_on_disk(entry)
        return changes

    # ------------------------------------------------------------------ the cold tier: reading

    def begin_load(self, match: Match, tokens: Sequence[int], keys: ChainKeys) -> None:
        """The shell reads `match.loads` now; `tokens` and `keys` are those of the match."""
        loads = set(match.loads)
        for number, block in enumerate(match.run):
            kinds: dict[EntryKind, EntryKey | None]
            kinds = {"kv": block.kv, "window": block.window, "point": block.point}
            for kind, key in kinds.items():
                if key is not None and key in loads:
                    ref = keys.ref(tokens, number, block.start + block.tokens)
                    self._tiers.cold.begin_load(key, ref, kind)

    def loaded(self, key: EntryKey, nbytes: int, *, now: float, held: int | None = None) -> Changes:
        """It has been read; `nbytes` and `held` as in `put`."""
        load = self._tiers.cold.end_load(key)
        self._counts.loaded += 1
        if held is not None:
            self._tiers.cold.correct(key, held)
        entry, changes = self._insert(
            load.ref, load.kind, key, nbytes=nbytes, held=held, now=now, sparing=False
        )
        if entry is not None:
            entry.from_disk = True
        is_tail = load.ref.tokens < self._tiers.layout.block_tokens
        if is_tail and self._tiers.cold.find(key) is not None:
            self._disk_tails.add(load.ref, key)
        return changes

    def load_failed(self, key: EntryKey, reason: str) -> None:
        """It could not be read and is taken for lost; the next match does without it."""
        self._tiers.cold.end_load(key)
        self._counts.load_failures[reason] += 1
        self._disk_tails.forget(key)
        if self._tiers.cold.forget(key):
            self._gone.went(key, "on disk, unreadable")

    # ------------------------------------------------------------------ the cold tier: writing

    def set_cold(self, enabled: bool) -> None:
        """Turn the cold tier on or off. On, what is in RAM is to be written as well."""
        cold = self._tiers.cold
        if enabled == cold.enabled:
            return
        cold.enable(enabled)
        self._disk_tails.clear()
        for entry in self._tiers.hot.entries.values():
            self._want_on_disk(entry)

    def cold_known(self, entries: Iterable[tuple[EntryKey, int]]) -> None:
        """A listing found these on disk, with their files' bytes. Nothing while the tier is off."""
        self._tiers.cold.listed(entries)

    def cold_gone(self, key: EntryKey) -> None:
        """It is no longer on disk."""
        self._disk_tails.forget(key)
        if self._tiers.cold.forget(key):
            self._gone.went(key, "evicted")

    def have_files(self, keys: Iterable[EntryKey]) -> list[EntryKey]:
        """Those of them that are on disk, or are being written."""
        return [key for key in keys if self._tiers.cold.is_kept(key)]

    def writes(self, max_bytes: int) -> tuple[EntryKey, ...]:
        """What the shell is to write now, oldest first; in flight are at most `max_bytes`.

        An entry larger than that is written when nothing else is.
        """
        return self._tiers.cold.hand_out(max_bytes)

    def written(self, key: EntryKey, nbytes: int) -> None:
        """It is on disk, in a file of `nbytes`."""
        self._tiers.cold.written(key, nbytes)

    def write_failed(self, key: EntryKey, reason: str) -> None:
        """It is not: tried a few times while it is in RAM and wanted, then counted as lost."""
        entry = self._tiers.hot.entries.get(key)
        is_wanted = entry is not None and (entry.node.is_tail or not entry.is_spent)
        self._tiers.cold.write_failed(key, reason, is_wanted=is_wanted)
        if not self._tiers.cold.is_coming(key):
            self._disk_tails.forget(key)

    def tails_left_behind(
        self, tokens: Sequence[int], keys: ChainKeys, *, prompt_tokens: int
    ) -> tuple[EntryKey, ...]:
        """Files of earlier turns, to be removed now that a row has stored its prompt's end.

        Those still on their way to the disk are named when a later end is stored.
        """
        cold, removed = self._tiers.cold, []
        for key in self._disk_tails.left_behind(tokens, keys, before=prompt_tokens - 1):
            cold.lose(key, "superseded")
            if cold.forget(key):
                removed.append(key)
            if not cold.is_coming(key):
                self._disk_tails.forget(key)
        return tuple(removed)

    # ------------------------------------------------------------------ the whole

    def resize(self, hot_bytes: int) -> Changes:
        """A new budget for RAM."""
        self._tiers.hot.budget = hot_bytes
        return self._keep_budget()

    def clear(self) -> Changes:
        """Forget everything, on disk too, but what is pinned."""
        gone = self._tiers.hot.remove_unpinned()
        self._tiers.cold.forget_all()
        self._disk_tails.clear()
        self._gone.clear()
        self._counts.evicted["cleared"] += len(gone)
        return Changes(evict=tuple(entry.key for entry in gone))

    def stats(self) -> CacheCounts:
        """A copy of the counts, with the state of things as of now."""
        counts = deepcopy(self._counts)
        self._tiers.hot.report(counts)
        self._tiers.cold.report(counts)
        return counts

    def check_integrity(self) -> None:
        """Assert all that has to hold between calls. Linear in what is cached."""
        check(self._tiers)
        self._disk_tails.check_integrity()
        for key in self._disk_tails:
            assert self._tiers.cold.find(key) or self._tiers.cold.is_coming(key), key.hex()

    # ------------------------------------------------------------------ inside

    def _insert(
        self,
        ref: BlockRef,
        kind: EntryKind,
        key: EntryKey,
        *,
        nbytes: int,
        held: int | None,
        now: float,
        sparing: bool,
    ) -> tuple[Entry | None, Changes]:
        held = ref.tokens if held is None else held
        hot = self._tiers.hot
        there = hot.entries.get(key)
        if there is not None and there.held >= held:
            return None, self._refuse("already held", [])
        if nbytes > hot.budget:
            return None, self._refuse("larger than the budget", [])
        entry, evicted = hot.insert(
            ref, kind, key, nbytes=nbytes, held=held, now=now, sparing=sparing
        )
        if entry is None:
            return None, self._refuse("no room", evicted)
        self._gone.came(key)
        return entry, Changes(evict=self._evicted(evicted, "room"), stored=True)

    def _has_kv(self, keys: ChainKeys, start: int) -> bool:
        """Whether the full block that begins at `start` has its keys and values in RAM."""
        number = start // keys.block_tokens
        if number >= len(keys.hashes):
            return False
        return keys.name(number, "kv") in self._tiers.hot.entries

    def _refuse(self, why: Refusal, evicted: list[Entry]) -> Changes:
        self._counts.refused[why] += 1
        return Changes(evict=self._evicted(evicted, "room"), refused=why)

    def _keep_budget(self) -> Changes:
        evicted = list(self._tiers.hot.make_room(0, sparing=False))
        return Changes(evict=self._evicted(evicted, "budget"))

    def _evicted(self, entries: list[Entry], reason: str) -> tuple[EntryKey, ...]:
        """Account for what has left RAM."""
        cold = self._tiers.cold
        for entry in entries:
            self._counts.evicted[reason] += 1
            self._lose(entry.key, "evicted before it was written")
            if not cold.is_kept(entry.key) and not entry.node.is_tail:
                self._gone.went(entry.key, "evicted")
        return tuple(entry.key for entry in entries)

    def _want_on_disk(self, entry: Entry) -> None:
        """A state is too large to be written for the sake of a tail."""
        node, cold = entry.node, self._tiers.cold
        if entry.is_spent or not cold.enabled or (node.is_tail and self._tiers.layout.recurrent):
            return
        cold.want(entry.key, entry.nbytes, entry.held)
        if node.is_tail:
            self._disk_tails.add(node.ref, entry.key)

    def _lose(self, key: EntryKey, reason: str) -> None:
        self._tiers.cold.lose(key, reason)
        if not self._tiers.cold.is_kept(key):
            self._disk_tails.forget(key)

    def _thin(self, cut: Cut) -> None:
        """The conversation has come to the end of this cut: what is behind it may be spent."""
        path = path_of(self._tiers.index, cut.ref, cut.chain)
        for entry in superseded(path, self._tiers.layout):
            self._tiers.hot.spend(entry)
            # A tail's file serves the very same prompt after a restart; the next turn removes it.
            if not entry.node.is_tail:
                self._lose(entry.key, "superseded")


def _is_cut_off(cut: Cut) -> bool:
    """Whether RAM had no room for the keys and values of this block, or of one before it."""
    start = cut.chain.no_room_from
    if start is None or cut.start < start:
        return False
    return cut.start > start or cut.kind != "kv"
