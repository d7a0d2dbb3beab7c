"""Which rows run and how much prompt a step takes. Events in, a `StepPlan` out; no clock, no MLX.

Rules this file keeps:
1. First come, first served. A row overtakes only while an older row's prompt is being run, and
   only when its own prompt is at most half of what is left of that one: it is through long
   before the other and costs it no more than its own length. While nobody decodes, short prompts
   that arrive together run together, with one that has not drawn its first token yet: a batch
   that starts as one decodes as one.
2. Rows that decode wait about `pace.STALL_S` for others' prompts, no longer.
3. Rows x longest row fits the memory given. Rows of very different length run in lanes of their
   own (at most `MAX_LANES`); when all lanes together outgrow the memory, the youngest row goes
   back to the line and is run again later.
4. A running row that goes out is named in exactly one plan's `remove`.
5. A row that is held (its prefix is being read, or computed by another row) stays in the line and
   stands in nobody's way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omlxd.errors import MemoryExceeded, OmlxError
from omlxd.ipc.messages import RowStats
from omlxd.sched.footprint import KvCost, best_lane
from omlxd.sched.pace import Pace
from omlxd.sched.rows import Row, RowKey, RowSpec

MAX_LANES = 3
GROUP_TOKENS = 2048  # prompts that run together in one step, padding included
HORIZON_TOKENS = 512  # output counted on when a row joins; more is taken back by preemption


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_rows: int
    prefill_cap: int  # tokens of one step while nobody decodes
    kv_budget_bytes: int | None = None  # None = not bounded


@dataclass(frozen=True, slots=True)
class Removal:
    key: RowKey
    lane: int
    preempted: bool = False  # to be inserted again, with the output so far as its prompt


@dataclass(frozen=True, slots=True)
class Insertion:
    key: RowKey
    lane: int
    max_tokens: int  # in all; less than asked for when memory holds no longer row


@dataclass(frozen=True, slots=True)
class LaneStep:
    lane: int
    prefill_step: int  # tokens per row


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """To be done in this order."""

    refuse: Sequence[tuple[str, OmlxError]] = ()  # request ids, forgotten with this plan
    remove: Sequence[Removal] = ()
    insert: Sequence[Insertion] = ()
    steps: Sequence[LaneStep] = ()


class Scheduler:
    """Owns the state of every row from `submit` to its end."""

    def __init__(self, bounds: Bounds, cost: KvCost) -> None:
        self.pace = Pace()
        self._bounds = bounds
        self._cost = cost
        self._waiting: dict[RowKey, Row] = {}  # in order of arrival
        self._running: dict[RowKey, Row] = {}
        self._leaving: list[Removal] = []  # for the next plan
        self._arrivals = 0

    # ------------------------------------------------------------------ events

    def configure(self, bounds: Bounds) -> None:
        """Take over new bounds. Rows that run beyond a lowered `max_rows` run on."""
        self._bounds = bounds

    def submit(self, specs: Sequence[RowSpec]) -> None:
        for spec in specs:
            assert spec.key not in self._waiting, spec.key
            assert spec.key not in self._running, spec.key
            self._waiting[spec.key] = Row(spec=spec, order=self._arrivals)
            self._arrivals += 1

    def cancel(self, request_id: str, index: int | None = None) -> list[RowKey]:
        """Forget a request, or one of its rows; gives the rows there were."""
        gone = [
            key
            for key in (*self._running, *self._waiting)
            if key.request_id == request_id and index in (None, key.index)
        ]
        for key in gone:
            self.row_ended(key)
        return gone

    def row_restorable(self, key: RowKey, tokens: int) -> None:
        """So many tokens of a waiting row's prompt are expected to need no run."""
        if (row := self._waiting.get(key)) is not None:
            assert 0 <= tokens < row.prefill_tokens, (key, tokens)
            row.restorable = tokens

    def hold(self, key: RowKey) -> None:
        """Keep a row in the line; one that a plan inserted must not have reached its lane yet."""
        if (row := self._running.get(key)) is not None:
            assert row.status == "prefill", row
            self._requeue(row)
        self._waiting[key].is_held = True

    def release(self, key: RowKey) -> None:
        """A held row may be inserted again; unknown rows are ignored, they may have gone."""
        if (row := self._waiting.get(key)) is not None:
            row.is_held = False

    def row_ended(self, key: RowKey) -> None:
        """The row needs nothing more; a running one leaves its lane with the next plan."""
        if self._waiting.pop(key, None) is None:
            row = self._running.pop(key)
            assert row.lane is not None
            self._leaving.append(Removal(key, row.lane))

    def row_progressed(self, key: RowKey, computed_tokens: int) -> None:
        """So many of its prompt's tokens have been run; with all of them it decodes."""
        row = self._running[key]
        row.computed_tokens = computed_tokens
        if row.remaining <= 0 and row.status == "prefill":
            row.move("decode", row.lane)
            row.alone = False

    def row_drew(self, key: RowKey) -> None:
        """One more output token."""
        self._running[key].output_tokens += 1

    def prefill_failed(self, keys: Sequence[RowKey]) -> None:
        """These prefilled together and one of them broke the step: each runs alone next time."""
        for key in keys:
            self._back_to_line(self._running[key], alone=True)

    # ------------------------------------------------------------------ the plan

    def schedule(self) -> StepPlan:
        refuse = self._refuse_oversized()
        self._preempt_overgrown()
        remove, self._leaving = self._leaving, []
        insert = self._insert_waiting()
        prefilling = len(self._prefilling())
        tokens = self.step_tokens()
        if prefilling:
            tokens = max(1, min(tokens, self._step_room() // prefilling))
        return StepPlan(
            refuse=refuse,
            remove=remove,
            insert=insert,
            steps=[LaneStep(lane, tokens) for lane in sorted(self._lanes())],
        )

    def step_tokens(self) -> int:
        """Prompt tokens the next step may run: of one row, and beside a stream over all rows."""
        return self.pace.step_tokens(
            cap=self._bounds.prefill_cap, decoding_lanes=len(self._decoding_lanes())
        )

    def _step_room(self) -> int:
        """Prompt tokens of one step, padding included: more while there is no stream to stall."""
        tokens = self.step_tokens()
        return tokens if self._decoding_lanes() else max(tokens, GROUP_TOKENS)

    def _decoding_lanes(self) -> set[int | None]:
        return {row.lane for row in self._running.values() if row.status == "decode"}

    def _insert_waiting(self) -> list[Insertion]:
        insert = []
        for row in list(self._waiting.values()):
            if self.running >= self._bounds.max_rows:
                break
            if row.is_held or not self._may_prefill(row):
                continue
            lane = self._place(row)
            if lane is None:
                break  # memory comes back as rows end; nobody overtakes meanwhile
            del self._waiting[row.spec.key]
            self._running[row.spec.key] = row
            row.move("prefill", lane)
            row.computed_tokens = row.restorable
            max_tokens = min(row.spec.max_tokens, self._longest() - row.spec.prompt_tokens)
            insert.append(Insertion(row.spec.key, lane, max_tokens))
        return insert

    def _may_prefill(self, row: Row) -> bool:
        """Whether it may join the prompts being run: rule 1."""
        others = self._prefilling()
        if not others:
            return True
        if row.alone or any(other.alone for other in others):
            return False
        to_run = row.prefill_tokens - row.restorable
        widest = max(to_run, *(other.remaining for other in others))
        if widest <= self.step_tokens() and widest * (len(others) + 1) <= self._step_room():
            return True  # all of them are through in one step
        older = [other.remaining for other in others if other.order < row.order]
        return all(2 * to_run <= remaining for remaining in older)

    def _place(self, row: Row) -> int | None:
        """The lane with room for it, in memory terms: rule 3."""
        lanes = self._lanes(horizon=True)
        budget = self._bounds.kv_budget_bytes
        if budget is None:
            return next(iter(lanes), 0)
        if not lanes:
            return 0  # alone it fits: `_refuse_oversized` has seen to that
        length = self._expected(row)
        joined = best_lane(lanes, length, cost=self._cost, budget=budget)
        free = [lane for lane in range(MAX_LANES) if lane not in lanes]
        if joined is not None or not free:
            return joined
        return best_lane({**lanes, free[0]: []}, length, cost=self._cost, budget=budget)

    def _refuse_oversized(self) -> list[tuple[str, OmlxError]]:
        """Waiting requests that no amount of waiting makes fit."""
        longest = self._longest()
        oversized = {
            row.spec.key.request_id: row.prefill_tokens
            for row in self._waiting.values()
            if row.prefill_tokens >= longest
        }
        for request_id in oversized:
            self.cancel(request_id)
        return [(key, self._memory_exceeded(tokens)) for key, tokens in oversized.items()]

    def _memory_exceeded(self, tokens: int) -> MemoryExceeded:
        return MemoryExceeded(
            f"{tokens} prompt tokens and one more need {self._cost.row_bytes(tokens + 1)} bytes of"
            f" KV, and this engine has {self._bounds.kv_budget_bytes} beside its weights;"
            " send a shorter prompt, or raise memory.max_process_memory or the model's max_memory"
        )

    def _preempt_overgrown(self) -> None:
        """Send the youngest rows back to the line until what runs fits: rule 3."""
        budget = self._bounds.kv_budget_bytes
        if budget is None:
            return
        while self.running > 1 and self._kv_bytes() > budget:
            youngest = max(self._running.values(), key=lambda row: row.order)
            self._back_to_line(youngest)

    # ------------------------------------------------------------------ reading

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Nothing to step and nothing to take out."""
        return not self._running and not self._waiting and not self._leaving

    @property
    def has_work(self) -> bool:
        """A plan would do something; else only rows are left that somebody must release."""
        return bool(
            self._running or self._leaving or any(not row.is_held for row in self._waiting.values())
        )

    def row_stats(self) -> list[RowStats]:
        return [
            RowStats(
                request_id=row.spec.key.request_id,
                status="restoring" if row.is_held else row.status,
                prompt_tokens=row.spec.prompt_tokens,
                computed_tokens=min(row.computed_tokens, row.spec.prompt_tokens),
                output_tokens=row.output_tokens,
            )
            for row in (*self._running.values(), *self._waiting.values())
        ]

    def decoding(self, lane: int) -> int:
        """How many rows decode in a lane."""
        return sum(row.status == "decode" and row.lane == lane for row in self._running.values())

    def check_integrity(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        orders = [row.order for row in self._waiting.values()]
        assert orders == sorted(orders)
        assert not self._waiting.keys() & self._running.keys()
        for key, row in (*self._waiting.items(), *self._running.items()):
            assert key == row.spec.key
            assert (row.lane is None) == (row.status == "waiting") == (key in self._waiting), row
            assert row.lane is None or 0 <= row.lane < MAX_LANES, row
            assert 0 <= row.resumed_at <= row.output_tokens, row
            assert not row.is_held or row.status == "waiting", row
            assert 0 <= row.restorable <= row.prefill_tokens, row
            assert (row.status == "decode") == (row.lane is not None and row.remaining <= 0), row
        left = [removal.key for removal in self._leaving if not removal.preempted]
        assert len(set(left)) == len(left)
        assert len(self._lanes()) <= MAX_LANES
        prefilling = self._prefilling()
        assert len(prefilling) <= 1 or not any(row.alone for row in prefilling)

    def _prefilling(self) -> list[Row]:
        return [row for row in self._running.values() if row.status == "prefill"]

    def _lanes(self, *, horizon: bool = False) -> dict[int, list[int]]:
        lanes: dict[int, list[int]] = {}
        for row in self._running.values():
            assert row.lane is not None
            length = self._expected(row) if horizon else row.length
            lanes.setdefault(row.lane, []).append(length)
        return lanes

    def _expected(self, row: Row) -> int:
        left = row.spec.max_tokens - row.output_tokens
        return min(row.length + min(left, HORIZON_TOKENS), self._longest())

    def _kv_bytes(self) -> int:
        return sum(self._cost.rectangle_bytes(lengths) for lengths in self._lanes().values())

    def _longest(self) -> int:
        budget = self._bounds.kv_budget_bytes
        return 1 << 30 if budget is None else self._cost.tokens_within(budget)

    def _back_to_line(self, row: Row, *, alone: bool = False) -> None:
        assert row.lane is not None
        self._leaving.append(Removal(row.spec.key, row.lane, preempted=True))
        row.resumed_at = row.output_tokens
        row.alone = alone
        self._requeue(row)

    def _requeue(self, row: Row) -> None:
        """From running to its place in the line."""
        row.move("waiting", None)
        row.computed_tokens = row.restorable = 0
        del self._running[row.spec.key]
        self._waiting[row.spec.key] = row
        in_order = sorted(self._waiting.items(), key=lambda item: item[1].order)
        self._waiting = dict(in_order)
