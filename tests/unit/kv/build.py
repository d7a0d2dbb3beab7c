"""Rows of a cache whose tokens are letters, and whose entries weigh what is easy to add up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from omlxd.kv.cache import KvCache
from omlxd.kv.chain_keys import NO_EXTRA, ChainKeys
from omlxd.kv.plans import Changes, Cut, Match
from omlxd.kv.types import ENTRY_KINDS, EntryKey, EntryKind, Layout

B = 4  # block_tokens
FULL = Layout(block_tokens=B, grows=True)
SLIDING = Layout(block_tokens=B, grows=True, window=6)
HYBRID = Layout(block_tokens=B, grows=True, recurrent=True)
RECURRENT = Layout(block_tokens=B, grows=False, recurrent=True)
WINDOWED = Layout(block_tokens=B, grows=False, window=6)
MIXED = Layout(block_tokens=B, grows=True, window=6, recurrent=True)
LAYOUTS = {
    "full": FULL,
    "sliding": SLIDING,
    "hybrid": HYBRID,
    "recurrent": RECURRENT,
    "windowed": WINDOWED,
    "mixed": MIXED,
}
WEIGHT = {"kv": 10, "window": 10}  # bytes per token
POINT_BYTES = 100


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def weight(cut: Cut, held: int | None = None) -> int:
    return POINT_BYTES if cut.kind == "point" else WEIGHT[cut.kind] * (held or cut.ref.tokens)


class Driver:
    """Plays the shell: every entry it is told to keep lies in `ram`, every file in `disk`."""

    def __init__(self, layout: Layout = FULL, *, hot_bytes: int = 10_000, cold: bool = False):
        self.cache = KvCache(layout, b"namespace", hot_bytes=hot_bytes)
        self.cache.set_cold(cold)
        self.layout = layout
        self.ram: dict[EntryKey, str] = {}  # what it is, for reading: "kv abcd"
        self.disk: dict[EntryKey, str] = {}
        self.now = 0.0

    def keys(self, text: str, extra: Mapping[int, bytes] = NO_EXTRA) -> ChainKeys:
        keys = self.cache.chain_keys(extra)
        keys.extend(letters(text))
        return keys

    def missing(
        self, text: str, *, at_point: bool = True, extra: Mapping[int, bytes] = NO_EXTRA
    ) -> tuple[Cut, ...]:
        keys = self.keys(text, extra)
        return self.cache.missing(letters(text), keys, computed=len(text), at_point=at_point)

    def store(
        self,
        text: str,
        *,
        request_id: str = "r",
        at_point: bool = True,
        kinds: Collection[EntryKind] = ENTRY_KINDS,
        extra: Mapping[int, bytes] = NO_EXTRA,
    ) -> list[str]:
        """Cut a row that has computed `text` for all that is missing; gives what was evicted."""
        gone = []
        for cut in self.missing(text, at_point=at_point, extra=extra):
            if cut.kind in kinds:
                gone += self.put(cut, text, request_id=request_id)
        return gone

    def put(
        self, cut: Cut, text: str, *, request_id: str = "r", held: int | None = None
    ) -> list[str]:
        changes = self.cache.put(
            cut, weight(cut, held), request_id=request_id, now=self.now, held=held
        )
        return self.keep(changes, cut.key, f"{cut.kind} {text[cut.start : cut.stop]}")

    def keep(self, changes: Changes, key: EntryKey | None = None, name: str = "") -> list[str]:
        gone = [self.ram.pop(each) for each in changes.evict]
        if key is not None and changes.stored:
            self.ram[key] = name
        self.cache.check_integrity()
        return gone

    def match(
        self, text: str, *, hot_only: bool = False, extra: Mapping[int, bytes] = NO_EXTRA
    ) -> Match:
        found = self.cache.match(letters(text), self.keys(text, extra), hot_only=hot_only)
        self.cache.check_integrity()
        return found

    def use(self, text: str) -> Match:
        """A request for `text` goes on from what is in RAM."""
        found = self.match(text)
        self.cache.pin(found)
        self.cache.touch(found, self.now)
        self.keep(self.cache.unpin(found))
        return found

    def write_all(self) -> list[str]:
        written = []
        while keys := self.cache.writes(10_000):
            for key in keys:
                self.disk[key] = self.ram[key]
                self.cache.written(key, 50)
                written.append(self.ram[key])
        self.cache.check_integrity()
        return written

    def forget_ram(self) -> None:
        """A new process, with the files of the old one."""
        self.cache = KvCache(
            self.layout, b"namespace", hot_bytes=self.cache.stats().hot_budget_bytes
        )
        self.cache.set_cold(True)
        self.cache.cold_known([(key, 50) for key in self.disk])
        self.ram.clear()

    def load(self, match: Match, text: str) -> None:
        """Read all that the match asks for."""
        self.cache.begin_load(match, letters(text), self.keys(text))
        for key in match.loads:
            self.keep(self.cache.loaded(key, 40, now=self.now), key, self.disk[key])

    def names(self, keys: Sequence[EntryKey]) -> list[str]:
        return [self.ram.get(key) or self.disk[key] for key in keys]

    def used(self, match: Match) -> list[str]:
        """What the join takes, block by block."""
        return self.names(match.keys)
