"""Random walks: whatever happens, every row gets one end and the rules hold."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from omlxd.sched.footprint import KvCost
from omlxd.sched.rows import RowKey, RowSpec
from omlxd.sched.scheduler import GROUP_TOKENS, MAX_LANES, Bounds, Insertion, Scheduler

COST = KvCost(per_token=2, windows=((3, 300),), per_row=50)
BUDGETS = st.one_of(st.none(), st.integers(2_000, 60_000))


class Walk(RuleBasedStateMachine):
    """Plays the loop and its lanes against a scheduler, and keeps its own books."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds = Bounds(max_rows=3, prefill_cap=256)
        self.sched = Scheduler(self.bounds, COST)
        self.arrived: dict[RowKey, int] = {}  # live rows, by order of arrival
        self.specs: dict[RowKey, RowSpec] = {}
        self.lanes: dict[int, dict[RowKey, int]] = {}  # tokens each row has computed
        self.output: dict[RowKey, int] = {}
        self.ended: set[RowKey] = set()
        self.held: set[RowKey] = set()
        self.requests = 0

    @rule(rows=st.integers(1, 3), prompt=st.integers(1, 3_000), max_tokens=st.integers(1, 900))
    def submit(self, rows: int, prompt: int, max_tokens: int) -> None:
        name = f"r{self.requests}"
        self.requests += 1
        specs = [
            RowSpec(key=RowKey(name, index), prompt_tokens=prompt, max_tokens=max_tokens)
            for index in range(rows)
        ]
        for spec in specs:
            self.arrived[spec.key] = len(self.specs)
            self.specs[spec.key] = spec
            self.output[spec.key] = 0
        self.sched.submit(specs)

    @rule(data=st.data(), whole=st.booleans())
    def cancel(self, data: st.DataObject, whole: bool) -> None:
        if not self.arrived:
            return
        key = data.draw(st.sampled_from(sorted(self.arrived, key=self.arrived.__getitem__)))
        gone = self.sched.cancel(key.request_id, None if whole else key.index)
        assert key in gone
        for each in gone:
            self.end(each)

    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        """A waiting row's prefix is to be read from disk."""
        waiting = [key for key in self.arrived if not self.in_lane(key)]
        if waiting:
            key = data.draw(st.sampled_from(waiting))
            self.sched.hold(key)
            self.held.add(key)

    @rule(share=st.floats(0, 1))
    def release(self, share: float) -> None:
        """What held rows waited for is here: some of their prompts, and more or less of them."""
        for key in self.held & self.arrived.keys():
            self.sched.release(key)
            if not self.in_lane(key):
                tokens = self.specs[key].prompt_tokens + self.output[key]
                self.sched.row_restorable(key, int(share * (tokens - 1)))
        self.held.clear()

    @rule(max_rows=st.integers(1, 6), budget=BUDGETS)
    def configure(self, max_rows: int, budget: int | None) -> None:
        self.bounds = Bounds(max_rows=max_rows, prefill_cap=256, kv_budget_bytes=budget)
        self.sched.configure(self.bounds)

    @rule(seconds=st.floats(0.001, 1.0), steps=st.integers(1, 40))
    def run(self, seconds: float, steps: int) -> None:
        for _ in range(steps):
            self.step(seconds)

    @rule(data=st.data())
    def break_a_prefill(self, data: st.DataObject) -> None:
        prefilling = [key for key in self.running() if self.remaining(key) > 0]
        if len(prefilling) > 1:
            self.sched.prefill_failed(prefilling)
            plan = self.sched.schedule()
            self.apply(plan)

    def step(self, seconds: float) -> None:
        plan = self.sched.schedule()
        self.apply(plan)
        assert {step.lane for step in plan.steps} == {n for n, rows in self.lanes.items() if rows}
        prefilling = [key for key in self.running() if self.remaining(key) > 0]
        tokens = self.sched.step_tokens()
        is_free = not any(self.sched.decoding(lane) for lane in self.lanes)
        room = max(tokens, GROUP_TOKENS) if is_free else tokens
        for step in plan.steps:
            assert step.prefill_step <= tokens
            assert len(prefilling) * step.prefill_step <= max(room, len(prefilling))
            self.step_lane(step.lane, step.prefill_step, seconds)

    def step_lane(self, lane: int, width: int, seconds: float) -> None:
        rows = self.lanes[lane]
        decoding = [key for key in rows if self.remaining(key) <= 0]
        prefilling = [key for key in rows if self.remaining(key) > 0]
        for key in prefilling:
            rows[key] += min(width, self.remaining(key))
            self.sched.row_progressed(key, rows[key])
        for key in decoding:
            self.output[key] += 1
            rows[key] += 1
            self.sched.row_drew(key)
            if self.output[key] >= self.specs[key].max_tokens:
                self.sched.row_ended(key)
                self.end(key)
        self.sched.pace.measured(
            seconds=seconds, prefill_tokens=len(prefilling) * width, decode_rows=len(decoding)
        )

    def apply(self, plan: Any) -> None:
        for request_id, error in plan.refuse:
            assert "bytes" in error.message
            for key in [key for key in self.arrived if key.request_id == request_id]:
                self.end(key)
        for removal in plan.remove:
            del self.lanes[removal.lane][removal.key]  # a KeyError is a second removal
            assert removal.preempted or removal.key not in self.arrived
        before = {key: self.remaining(key) for key in self.running()}
        for insertion in plan.insert:
            self.insert(insertion, before)
        assert not plan.insert or len(self.running()) <= self.bounds.max_rows

    def insert(self, insertion: Insertion, before: dict[RowKey, int]) -> None:
        key = insertion.key
        assert key not in self.held
        assert all(key not in rows for rows in self.lanes.values())
        assert 0 <= insertion.lane < MAX_LANES
        assert 1 <= insertion.max_tokens <= self.specs[key].max_tokens
        skipped = [
            each
            for each, order in self.arrived.items()
            if order < self.arrived[key]
            and not (each in before or each in self.held or self.in_lane(each))
        ]
        if skipped:
            assert self.waits_for_prefill() or self.bounds.kv_budget_bytes is not None
        self.lanes.setdefault(insertion.lane, {})[key] = 0

    def waits_for_prefill(self) -> bool:
        """A row may be skipped only while some older prompt is being run."""
        return any(self.remaining(key) > 0 for key in self.running())

    def end(self, key: RowKey) -> None:
        assert key not in self.ended
        self.ended.add(key)
        del self.arrived[key]
        self.held.discard(key)

    def running(self) -> list[RowKey]:
        return [key for rows in self.lanes.values() for key in rows if key in self.arrived]

    def in_lane(self, key: RowKey) -> bool:
        return any(key in rows for rows in self.lanes.values())

    def remaining(self, key: RowKey) -> int:
        computed = next(rows[key] for rows in self.lanes.values() if key in rows)
        return self.specs[key].prompt_tokens + self.output[key] - computed

    @invariant()
    def integrity(self) -> None:
        self.sched.check_integrity()
        assert self.sched.running + self.sched.waiting == len(self.arrived)

    def teardown(self) -> None:
        """With time, everything ends, and nothing is left behind."""
        self.release(share=0.5)
        self.bounds = Bounds(max_rows=8, prefill_cap=4096)
        self.sched.configure(self.bounds)
        for _ in range(20_000):
            if self.sched.is_idle:
                break
            self.step(0.01)
        assert self.sched.is_idle
        assert self.ended == set(self.specs)
        assert not any(self.lanes.values())


Walk.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestWalks = Walk.TestCase
