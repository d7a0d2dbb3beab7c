"""The engine loop over fake lanes, in the test's own thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omlxd.errors import OmlxError
from omlxd.sched.footprint import KvCost
from omlxd.sched.scheduler import Bounds, Scheduler
from omlxd.worker.commands import Inbox, Stop, Submit
from omlxd.worker.loop import EngineLoop
from omlxd.worker.ports import (
    CacheFrame,
    EngineStats,
    ResolvedSampling,
    RowJob,
    RowUsage,
    TokenOut,
)
from omlxd.worker.prefixes import NoPrefixes, Prefixes
from tests.fakes.fake_lane import VOCABULARY, FakeDevice, FakeLane


class LoopRig:
    """A loop in this thread; it stops when `rows` rows or requests have ended."""

    def __init__(
        self,
        *,
        max_rows: int = 8,
        budget: int | None = None,
        cap: int = 64,
        prefixes: Prefixes | None = None,
    ) -> None:
        self.inbox = Inbox()
        self.lanes: dict[int, FakeLane] = {}
        self.device = FakeDevice()
        self.now = 0.0
        self.second_per_token = 0.0
        self.cap = cap
        self.scheduled: list[str] = []
        self.steps: list[list[TokenOut]] = []
        self.usages: list[RowUsage] = []
        self.failed: dict[str, OmlxError] = {}
        self.stats: list[EngineStats] = []
        self.cache_frames: list[CacheFrame] = []
        self.on_step: Callable[[], None] = lambda: None
        self.on_report: Callable[[], None] = lambda: None
        self.ends_left = 1 << 30
        bounds = Bounds(max_rows=max_rows, prefill_cap=cap, kv_budget_bytes=budget)
        self.loop = EngineLoop(
            inbox=self.inbox,
            scheduler=Scheduler(bounds, KvCost(per_token=1)),
            make_lane=self.make_lane,
            bounds=lambda live: Bounds(max_rows=live.max_concurrent_requests, prefill_cap=cap),
            prefixes=prefixes or NoPrefixes(self.on_cache),
            vocabulary=VOCABULARY,
            listener=self,
            device=self.device,
            clock=lambda: self.now,
        )

    def make_lane(self, number: int) -> FakeLane:
        assert number not in self.lanes
        self.lanes[number] = FakeLane()
        return self.lanes[number]

    def submit(
        self,
        name: str,
        *prompts: Sequence[int],
        max_tokens: int = 3,
        stop_tokens: frozenset[int] = frozenset(),
        sampling: ResolvedSampling | None = None,
    ) -> None:
        rows = [
            RowJob(
                request_id=name,
                index=index,
                prompt=prompt,
                max_tokens=max_tokens,
                sampling=sampling or ResolvedSampling(),
                stop_tokens=stop_tokens,
            )
            for index, prompt in enumerate(prompts)
        ]
        self.inbox.put(Submit(rows))

    def run(self, *, ends: int) -> None:
        self.ends_left = ends
        self.loop.run()

    def tokens(self, name: str, index: int = 0) -> list[int]:
        return [
            each.token
            for step in self.steps
            for each in step
            if (each.request_id, each.index) == (name, index)
        ]

    # ------------------------------------------------------------------ EngineListener

    def on_scheduled(self, request_id: str) -> None:
        self.scheduled.append(request_id)

    def on_tokens(self, tokens: Sequence[TokenOut], ended: Sequence[RowUsage]) -> None:
        self.steps.append(list(tokens))
        self.usages += ended
        self.now += self.second_per_token
        self.on_step()
        self._count(sum(each.finish is not None for each in tokens))

    def on_failed(self, request_id: str, error: OmlxError) -> None:
        assert request_id not in self.failed
        self.failed[request_id] = error
        self._count(1)

    def on_stats(self, stats: EngineStats) -> None:
        self.stats.append(stats)
        self.on_report()

    def on_cache(self, frame: CacheFrame) -> None:
        self.cache_frames.append(frame)

    def _count(self, ends: int) -> None:
        self.ends_left -= ends
        if ends and self.ends_left <= 0:
            self.inbox.put(Stop())
