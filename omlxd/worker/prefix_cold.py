"""The cold tier as the prefix cache drives it, on the engine thread: writes behind, reads ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from omlxd.ipc.messages import LiveSettings
from omlxd.kv.plans import Match
from omlxd.kv.types import EntryKey
from omlxd.worker.cold_store import ColdStore, Done, Lost
from omlxd.worker.prefix_hot import HotPieces

MAX_WRITING_BYTES = 64 << 20  # handed out at once; the rest stays where it may yet be superseded
UNBOUNDED = 1 << 62
RATE_WEIGHT = 0.5
RATE_GOOD_S = 60.0  # a rate that is older says nothing: the next hit is taken, and measured

Post = Callable[[Callable[[], None]], None]  # have it called on the engine thread, soon


class ReadRate:
    """Seconds that a restored token took to come from disk."""

    def __init__(self) -> None:
        self._token_s: float | None = None
        self._at = 0.0

    def measured(self, *, tokens: int, seconds: float, now: float) -> None:
        old, new = self.token_s(now), seconds / tokens
        self._token_s = new if old is None else old + RATE_WEIGHT * (new - old)
        self._at = now

    def token_s(self, now: float) -> float | None:
        return self._token_s if now - self._at <= RATE_GOOD_S else None


class ColdShelf:
    """`on_read(key)` is called for every read that has ended, well or not."""

    def __init__(
        self,
        folder: Path | None,
        *,
        hot: HotPieces,
        post: Post,
        on_read: Callable[[EntryKey], None],
    ) -> None:
        self._folder = folder
        self._hot, self._core = hot, hot.core
        self._post, self._on_read = post, on_read
        self._store: ColdStore | None = None
        self._is_on = False
        self._in_flight = 0  # writes
        self._once_written: list[Callable[[], None]] = []
        self._lister: threading.Thread | None = None
        self._found: list[tuple[EntryKey, int]] = []  # by the lister, not told to the core yet
        self.changes = 0
        self.read_bytes = 0
        self.written_bytes = 0

    @property
    def queued_bytes(self) -> int:
        return self._store.queued_bytes if self._store is not None else 0

    @property
    def degraded(self) -> str:
        return self._store.degraded if self._store is not None and self._is_on else ""

    def configure(self, live: LiveSettings) -> None:
        if self._folder is None:
            return
        if live.cold and self._store is None:
            self._store = ColdStore(
                self._folder,
                on_done=lambda done: self._post(lambda: self._done(done)),
                queue_bytes=UNBOUNDED,  # what is handed over is bounded here, but at the end
            )
        if self._store is not None:
            self._store.set_min_free(live.cold_min_free_bytes)
        if live.cold == self._is_on:
            return
        self._is_on = live.cold
        self.changes += 1
        self._core.set_cold(live.cold)
        if live.cold:
            self._lister = threading.Thread(target=self._list, name="cold-list", daemon=True)
            self._lister.start()
            self.write_behind()

    def await_list(self, timeout_s: float) -> None:
        """Know what is on disk, as far as listing it takes no longer."""
        if self._lister is not None:
            self._lister.join(timeout_s)
            self._listed()

    def write_behind(self) -> None:
        """Hand over what is to be written next; what a bad disk cannot take stays for later."""
        if self._store is None or not self._is_on:
            return
        if self._store.degraded:
            self._store.probe()
            return
        for key in self._core.writes(MAX_WRITING_BYTES):
            self._in_flight += 1
            self._store.write(key, self._hot[key])

    def once_written(self, act: Callable[[], None]) -> None:
        """Call it when nothing is on its way to the disk, which may be now."""
        self._once_written.append(act)
        self._settle()

    def read(self, match: Match) -> None:
        assert self._store is not None
        for key in match.loads:
            self._store.read(key)

    def touch(self, keys: Sequence[EntryKey]) -> None:
        """Their files were used; tail to head."""
        if self._store is not None and self._is_on:
            self._store.touch(keys)

    def remove(self, keys: Sequence[EntryKey]) -> None:
        """Their files are of no more use."""
        if self._store is not None and self._is_on and keys:
            self._store.remove(keys)
            self.changes += 1

    def close(self, deadline_s: float) -> Lost:
        """Write what there is to write, as far as the time goes."""
        if self._store is None:
            return Lost()
        for key in self._core.writes(UNBOUNDED) if self._is_on else ():
            self._store.write(key, self._hot[key])
        return self._store.close(deadline_s)

    # ------------------------------------------------------------------ answers

    def _list(self) -> None:
        """In a thread of its own: a folder may hold a hundred thousand files."""
        assert self._store is not None
        self._found = list(self._store.list())
        self._post(self._listed)

    def _listed(self) -> None:
        found, self._found = self._found, []
        if found:
            self._core.cold_known(found)
            self.changes += 1

    def _done(self, done: Done) -> None:
        self.changes += 1
        self._in_flight -= done.op == "write"
        match done.op:
            case "write" if done.ok:
                self.written_bytes += done.nbytes
                self._core.written(done.key, done.nbytes)
            case "write":
                self._core.write_failed(done.key, done.reason)
            case "touch" if done.reason == "absent":
                self._core.cold_gone(done.key)
            case "read":
                self._read_done(done)
        self._settle()
        self.write_behind()

    def _settle(self) -> None:
        if self._in_flight == 0:
            acts, self._once_written = self._once_written, []
            for act in acts:
                act()

    def _read_done(self, done: Done) -> None:
        if done.piece is not None:
            self.read_bytes += done.nbytes
            self._hot.loaded(done.key, done.piece)
        else:
            self._core.load_failed(done.key, done.reason)
        self._on_read(done.key)
