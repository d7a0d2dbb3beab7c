"""Rows and the prefix cache: what a row begins with, when it is stored, whom it waits for.

Rules this file keeps:
1. A row is matched when it comes (so that reads from disk begin) and again when its turn comes.
   While its prefix is being read, or computed by another row, it is held in the line.
2. What a row has computed is stored at its pauses, and all of it when it leaves its lane, whatever
   the reason: not after a step that broke with it, since then nobody knows what its caches hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omlxd.ipc.messages import PrefixMatch
from omlxd.kv.types import Layout
from omlxd.sched.pauses import can_wait, decode_is_due, last_seen, plan_pauses, prefill_is_due
from omlxd.sched.rows import RowKey
from omlxd.sched.scheduler import Scheduler
from omlxd.sched.sharing import Sharing, pays
from omlxd.worker.lanes import COLD_START, RowCaches, Start, StepOutcome
from omlxd.worker.prefixes import Prefixes, RowPrefix

MAX_SHARED_PAUSES = 4


@dataclass(slots=True)
class _Row:
    prefix: RowPrefix
    tokens: Sequence[int]  # prompt and output, as they grow
    read: Callable[[], RowCaches | None] | None = None  # set while it is in a lane
    pauses: Sequence[int] = ()
    total: int = 0  # tokens to run before it decodes
    computed: int = 0
    has_drawn: bool = False  # since it came into its lane
    is_broken: bool = False

    @property
    def can_share(self) -> bool:
        """It computes its prompt, or has just done so: not all of that is stored yet."""
        return self.read is not None and not self.has_drawn and not self.is_broken


class Reuse:
    def __init__(self, prefixes: Prefixes, scheduler: Scheduler) -> None:
        self._prefixes = prefixes
        self._scheduler = scheduler
        self._sharing = Sharing()
        self._rows: dict[RowKey, _Row] = {}

    # ------------------------------------------------------------------ the line

    def submitted(self, key: RowKey, tokens: Sequence[int]) -> None:
        """`tokens` is the row's own list, which grows with it."""
        if self._prefixes.layout is not None:
            row = self._rows[key] = _Row(self._prefixes.open(key.request_id), tokens)
            self._seek(key, row)

    def release_arrived(self) -> None:
        """Rows whose reads have ended are in the line again, with what there is now."""
        arrived = self._prefixes.take_arrived()
        for key, row in self._rows.items() if arrived else ():
            if row.prefix in arrived and row.read is None:
                self._scheduler.release(key)
                self._seek(key, row)

    def forget(self, key: RowKey) -> None:
        """The row has come to its end; one that is in a lane is stored when it goes."""
        row = self._rows.get(key)
        if row is not None and row.read is None:
            self._close(key, row)

    def _seek(self, key: RowKey, row: _Row) -> bool:
        sought = row.prefix.seek(row.tokens)
        self._scheduler.row_restorable(key, sought.tokens)
        if not sought.is_ready:
            self._scheduler.hold(key)
        return sought.is_ready

    # ------------------------------------------------------------------ in a lane

    def start(
        self, key: RowKey, read: Callable[[], RowCaches | None]
    ) -> tuple[Start, PrefixMatch | None] | None:
        """What the row begins with, now that it is its turn; None = it is held in the line.

        `read` gives its caches once it is in its lane.
        """
        row, layout = self._rows.get(key), self._prefixes.layout
        if row is None or layout is None:
            return COLD_START, None
        sought = row.prefix.seek(row.tokens)
        if not sought.is_ready:
            self._scheduler.hold(key)
            return None
        donor, until = self._donor(row, sought.tokens)
        if donor is not None:
            if self._rows[donor].computed < until:
                self._scheduler.hold(key)
                self._sharing.wait(key, donor, until=until)
                return None
            self._store(self._rows[donor], at_point=False)
            row.prefix.seek(row.tokens)
        restored = row.prefix.restore()
        row.read, row.has_drawn = read, False
        row.total, row.computed = len(row.tokens), restored.tokens
        row.pauses = plan_pauses(
            layout, start=row.computed, total=row.total, shared=self._partings(row, layout)
        )
        begin = Start(caches=restored.caches, computed_tokens=row.computed, pauses=row.pauses)
        return begin, restored.match

    def after_step(self, outcome: StepOutcome) -> None:
        """Store rows that have come to a pause; let go those that waited for them."""
        for progress in outcome.progress:
            row = self._rows.get(progress.key)
            if row is not None and row.read is not None:
                row.computed = progress.computed_tokens
                self._prefilled(progress.key, row)
        layout = self._prefixes.layout
        if layout is None:
            return
        for drawn in outcome.drawn:
            row = self._rows.get(drawn.key)
            if row is not None and row.read is not None:
                self._drew(row, layout, drawn.computed_tokens)

    def broke(self, keys: Sequence[RowKey]) -> None:
        """A step broke with these rows in it."""
        for key in keys:
            if key in self._rows:
                self._rows[key].is_broken = True

    def leaving(self, key: RowKey, *, comes_back: bool) -> None:
        """The row is taken out of its lane after this."""
        row = self._rows.get(key)
        if row is None or row.read is None:
            return
        self._store(row, at_point=True)
        if not comes_back:
            self._close(key, row)
            return
        row.read, row.is_broken = None, False
        self._let_go(self._sharing.left(key))
        self._seek(key, row)

    def close(self) -> None:
        """The engine ends: keep what running rows have computed."""
        for key in [key for key, row in self._rows.items() if row.read is not None]:
            self.leaving(key, comes_back=False)

    # ------------------------------------------------------------------ inside

    def _prefilled(self, key: RowKey, row: _Row) -> None:
        layout, computed = self._prefixes.layout, row.computed
        freed = self._sharing.passed(key, computed)
        is_due = layout is not None and prefill_is_due(
            layout, computed=computed, total=row.total, pauses=row.pauses
        )
        if freed or is_due:
            self._store(row, at_point=computed in row.pauses or computed == row.total)
        self._let_go(freed)

    def _drew(self, row: _Row, layout: Layout, computed: int) -> None:
        is_first, row.has_drawn = not row.has_drawn, True
        if is_first and can_wait(layout):
            self._store(row, at_point=True, upto=row.total)
        elif decode_is_due(layout, computed):
            self._store(row, at_point=True, growing=False)

    def _close(self, key: RowKey, row: _Row) -> None:
        row.prefix.close()
        del self._rows[key]
        self._let_go(self._sharing.left(key))

    def _let_go(self, keys: Sequence[RowKey]) -> None:
        for key in keys:
            self._scheduler.release(key)
            if (row := self._rows.get(key)) is not None:
                self._seek(key, row)

    def _store(
        self, row: _Row, *, at_point: bool, growing: bool = True, upto: int | None = None
    ) -> None:
        if row.read is not None and not row.is_broken:
            row.prefix.store(row.read, at_point=at_point, growing=growing, upto=upto)

    def _donor(self, row: _Row, restorable: int) -> tuple[RowKey | None, int]:
        """A row that prefills what this one begins with, and how far it is worth to have it."""
        layout = self._prefixes.layout
        assert layout is not None
        best: tuple[RowKey | None, int] = (None, 0)
        for key, other in self._rows.items():
            if not other.can_share:
                continue
            shared = self._shared(other, row, layout.block_tokens)
            until = last_seen(layout, shared=shared, pauses=other.pauses)
            worth = pays(
                until=until,
                computed=other.computed,
                restorable=restorable,
                block_tokens=layout.block_tokens,
            )
            if worth and until > best[1]:
                best = key, until
        return best

    def _partings(self, row: _Row, layout: Layout) -> list[int]:
        """Where rows that wait in the line part from this one, for states to be kept there."""
        if not layout.recurrent:
            return []
        waiting = (other for other in self._rows.values() if other.read is None)
        points = {
            self._shared(row, other, layout.block_tokens) for other in waiting if other is not row
        }
        return sorted(points, reverse=True)[:MAX_SHARED_PAUSES]

    @staticmethod
    def _shared(ahead: _Row, behind: _Row, block_tokens: int) -> int:
        """Tokens of both that the second can restore: whole blocks, and one is left to be run."""
        most = (len(behind.tokens) - 1) // block_tokens * block_tokens
        return min(ahead.prefix.shared(behind.prefix), most)
