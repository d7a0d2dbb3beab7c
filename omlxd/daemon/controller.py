"""The one writer of the observed state: facts in, passes of `plan`, actions out.

Facts are folded by plain methods on the event loop, in the order they happen; none of them waits.
One task runs passes: whenever something changed, and when the plan asked to be called again. A fact
only says "look again", so facts coalesce and none is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from omlxd.daemon.cache_book import CacheBook
from omlxd.daemon.fleet import Fleet
from omlxd.daemon.gateway import RequestGateway, Ticket
from omlxd.daemon.grants import GrantBook
from omlxd.daemon.journal import Journal
from omlxd.daemon.memory import footprint
from omlxd.daemon.refusals import lost, refusal
from omlxd.daemon.supervisor import Worker, WorkerExit
from omlxd.errors import BY_CODE, OmlxError, RequestInvalid, WorkerDied
from omlxd.ipc.messages import (
    CacheDone,
    CacheEvicted,
    CacheReport,
    Events,
    FromWorker,
    Loaded,
    LoadFailed,
    RowStats,
    Stats,
)
from omlxd.reconcile import events
from omlxd.reconcile.plan import plan
from omlxd.reconcile.state import (
    Action,
    ConfigureEngine,
    Desired,
    DrainEngine,
    EngineObserved,
    KeepSpares,
    ModelId,
    Observed,
    Plan,
    RefuseWaiting,
    ResumeEngine,
    RetryEngine,
    StartEngine,
    StopEngine,
)

ABSENT = EngineObserved()
MAX_ROUNDS = 50  # plans in one pass; a settled world plans nothing long before


class Controller:
    """Owns `engines`. Implements the fleet's facts and the gateway's dispatch of tickets."""

    def __init__(
        self,
        journal: Journal,
        *,
        on_change: Callable[[], None],
        on_measured: Callable[[ModelId, int, Loaded], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engines: dict[ModelId, EngineObserved] = {}
        self.facts: dict[ModelId, Loaded] = {}
        self.stats: dict[ModelId, Stats] = {}
        self.cache = CacheBook(journal)
        self.cold_dir = ""  # folder of the cold tier if it may be used now; set by the daemon
        self.desired = Desired(generation=0, engines={}, memory_limit_bytes=0, spare_workers=0)
        self.observed_generation = 0
        self.last_plan = Plan()
        self.base_bytes = 0
        self.fleet: Fleet  # wired by the daemon, as is the gateway
        self.gateway: RequestGateway
        self._journal = journal
        self._on_change = on_change
        self._on_measured = on_measured
        self._clock = clock
        self._stopping = False
        self._reasons: dict[ModelId, str] = {}  # why the present worker was started
        self.grants = GrantBook()
        self._wake = asyncio.Event()

    # -------------------------------------------------------------- passes

    async def run(self) -> None:
        """Passes, for ever."""
        while True:
            self._wake.clear()
            self.reconcile()
            try:
                async with asyncio.timeout(self.last_plan.requeue_after):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def wake(self) -> None:
        """Look again."""
        self._wake.set()

    def reconcile(self) -> None:
        """Plan and execute until nothing is left to do now."""
        for _ in range(MAX_ROUNDS):
            now = self._clock()
            self.last_plan = plan(self.desired, self.observed(), now)
            for action in self.last_plan.actions:
                self._execute(action, now)
            if not self.last_plan.actions:
                break
        else:
            raise RuntimeError(f"the plan does not settle: {self.last_plan.actions}")
        self._hand_over()
        self._grant()
        self._forget_absent()
        self.observed_generation = self.desired.generation
        self._on_change()

    def _forget_absent(self) -> None:
        """Nothing is kept of models that are gone and no longer served."""
        for model, engine in list(self.engines.items()):
            is_absent = engine.phase == "absent" and engine.waiting == 0
            if is_absent and model not in self.desired.engines:
                del self.engines[model]

    def observed(self) -> Observed:
        return Observed(
            engines=dict(self.engines),
            base_bytes=self.base_bytes,
            hot_bytes=self.grants.pressure.yields_bytes,
            hot_room_bytes=self.grants.pressure.room_bytes,
            spares=self.fleet.spares,
            stopping=self._stopping,
        )

    @property
    def is_settled(self) -> bool:
        """Everything wanted is running as it was asked for, as of the last pass."""
        return not self.last_plan.waits and all(
            engine.phase in ("absent", "ready") for engine in self.engines.values()
        )

    # -------------------------------------------------------------- actions

    def _execute(self, action: Action, now: float) -> None:
        match action:
            case StartEngine(model=model):
                self._put(model, events.on_started(self._get(model), now, start=action))
                self._reasons[model] = action.reason
                self._grant()  # what it may take goes with its very first settings
                self.fleet.start(model, action.load, self.grants.added_to(action.live, model))
            case ConfigureEngine(model=model):
                self._put(model, events.on_configured(self._get(model), live=action.live))
                self.fleet.configure(model, self.grants.added_to(action.live, model))
            case DrainEngine(model=model, reason=reason):
                self._put(model, events.on_draining(self._get(model), now, reason=reason))
                self._journal.draining(model, reason)
            case ResumeEngine(model=model):
                self._put(model, events.on_resumed(self._get(model), now))
                self._journal.resumed(model)
            case StopEngine(model=model, reason=reason):
                self._journal.stopping(model, reason, action.for_model)
                self._put(model, events.on_stopping(self._get(model), now, reason=reason))
                self.fleet.stop(model)
            case RetryEngine(model=model):
                self._put(model, events.on_retry(self._get(model), now))
            case RefuseWaiting(model=model, code=code, message=message):
                self._refuse(model, BY_CODE[code](message))
            case KeepSpares(count=count):
                self.fleet.keep_spares(count)

    def _refuse(self, model: ModelId, error: OmlxError) -> None:
        self._put(model, events.on_refused(self._get(model)))
        for ticket in self.gateway.waiting_for(model):
            ticket.fail(error)
        self._journal.refused(model, error.message)

    def _hand_over(self) -> None:
        """Give waiting requests to the engines that take them."""
        for model, engine in list(self.engines.items()):
            if engine.waiting == 0 or engine.phase not in ("loading", "ready"):
                continue
            worker = self.fleet.worker_of(model)
            assert worker is not None, model
            for ticket in self.gateway.waiting_for(model):
                try:
                    ticket.hand(worker)
                except WorkerDied:
                    break  # its exit is on the way, and with it another worker
                except RequestInvalid as error:
                    self._give_up(ticket, error)
                else:
                    self._put(model, events.on_request_handed(self._get(model)))

    def _grant(self) -> None:
        """Tell every engine with a worker what it may take, when that changed."""
        phases = ("starting", "loading", "ready", "draining")
        held = {model: e for model, e in self.engines.items() if e.phase in phases}
        tokens = {m: self.cache.prompt_tokens(m) for m in held if self._may_reuse(m)}
        for model in self.grants.review(
            self.desired, held, tokens=tokens, cold_dir=self.cold_dir, now=self._clock()
        ):
            live = held[model].live
            if live is not None:
                self.fleet.configure(model, self.grants.added_to(live, model))

    def _may_reuse(self, model: ModelId) -> bool:
        facts = self.facts.get(model)
        return facts is None or facts.prefix_reuse  # not known before it is loaded

    # -------------------------------------------------------------- facts: what is wanted

    def want(self, desired: Desired) -> None:
        """A new desired state: another spec was accepted, or the model folders changed."""
        for model, spec in desired.engines.items():
            before = self.desired.engines.get(model)
            if spec.preload and before is not None and not before.preload:
                self._put(model, events.on_preload_asked(self._get(model)))
        is_other_limit = desired.memory_limit_bytes != self.desired.memory_limit_bytes
        self.desired = desired
        if is_other_limit:
            self._weigh()
        self.wake()

    def load(self, model: ModelId) -> None:
        self._put(model, events.on_load_requested(self._get(model), self._clock()))
        self.wake()

    def unload(self, model: ModelId) -> None:
        self._put(model, events.on_unload_requested(self._get(model)))
        self.wake()

    def stop(self) -> None:
        """Nothing new is started or taken; what is idle ends, what runs may finish."""
        self._stopping = True
        self.wake()

    def give_up(self, error: OmlxError) -> None:
        """Fail every request that has not ended."""
        for ticket in self.gateway.open_tickets():
            self._give_up(ticket, error)

    def _give_up(self, ticket: Ticket, error: OmlxError) -> None:
        self.request_ended(ticket)
        ticket.fail(error)

    # -------------------------------------------------------------- facts: requests

    def request_arrived(self, ticket: Ticket) -> None:
        engine = self._get(ticket.model)
        error = refusal(ticket.model, engine, self.desired, is_stopping=self._stopping)
        if error is not None:
            ticket.fail(error)
            return
        self._put(ticket.model, events.on_request_waiting(engine, self._clock()))
        self.wake()

    def request_ended(self, ticket: Ticket) -> None:
        engine, now = self._get(ticket.model), self._clock()
        if ticket.state == "waiting":
            engine = events.on_waiter_left(engine, now)
        else:
            engine = events.on_request_ended(engine, now)
        self._put(ticket.model, engine)
        self.wake()

    # -------------------------------------------------------------- facts: workers

    def worker_loading(self, model: ModelId) -> None:
        self._put(model, events.on_loading(self._get(model), self._clock()))
        self.wake()

    def worker_message(self, model: ModelId, worker: Worker, message: FromWorker) -> None:
        match message:
            case Events(events=batch):
                self.gateway.deliver(batch)
            case Stats():
                self._counted(model, message)
            case Loaded():
                self._loaded(model, worker.pid, message)
            case LoadFailed():
                self._load_failed(model, message)
            case CacheReport() | CacheEvicted() | CacheDone():
                self.cache.heard(model, message)
                self._on_change()
            case _:
                pass  # TokenizerReady, Hello: nothing waits for them

    def _counted(self, model: ModelId, stats: Stats) -> None:
        before = self.stats.get(model)
        self.stats[model] = stats
        if before is None or (before.running, before.waiting) != (stats.running, stats.waiting):
            self._on_change()

    def _loaded(self, model: ModelId, pid: int, loaded: Loaded) -> None:
        engine = self._get(model)
        if engine.phase == "stopping":
            return  # it crossed the order to stop
        measured = footprint([pid]).get(pid)  # None: the process is gone again
        taken = measured or engine.reserved_bytes
        self._put(model, events.on_loaded(engine, self._clock(), footprint_bytes=taken))
        self.facts[model] = loaded
        self._journal.loaded(model, loaded, taken, self._reasons.get(model, ""))
        if measured:
            self._on_measured(model, measured, loaded)
        self.wake()

    def _load_failed(self, model: ModelId, failed: LoadFailed) -> None:
        engine = self._get(model)
        if engine.phase == "stopping":
            return
        self._put(
            model,
            events.on_load_failed(
                engine, self._clock(), message=failed.message, permanent=failed.permanent
            ),
        )
        self.fleet.stop(model)
        self._journal.load_failed(model, failed)
        self.wake()

    def worker_gone(
        self, model: ModelId, worker_id: int, *, why: str, how: WorkerExit | None
    ) -> None:
        before = self._get(model)
        engine = events.on_exited(before, self._clock(), reason=why)
        self._put(model, engine)
        self.facts.pop(model, None)
        self.stats.pop(model, None)
        self.cache.gone(model)
        self._journal.gone(model, before, engine, how, self._clock())
        for ticket in self.gateway.handed_to(worker_id):
            if engine.phase != "failed" and not self._stopping and ticket.requeue():
                self._put(model, events.on_request_waiting(self._get(model), self._clock()))
            else:
                ticket.fail(lost(model, engine, why))
        self.wake()

    def spares_changed(self) -> None:
        self.wake()

    def footprints_measured(self, daemon: int, by_pid: Mapping[int, int]) -> None:
        """Bytes of the daemon and of every worker."""
        base = daemon
        for pid, model in self.fleet.pids().items():
            if model is None:
                base += by_pid.get(pid, 0)
            elif pid in by_pid:
                engine = self._get(model)
                self._put(model, events.on_footprint(engine, footprint_bytes=by_pid[pid]))
        self.base_bytes = base
        self._weigh()
        self.wake()

    def _weigh(self) -> None:
        """How much RAM blocks may take, by what was measured last."""
        taken = self.base_bytes + sum(engine.footprint_bytes for engine in self.engines.values())
        self.grants.measured(
            self.desired, taken=taken, held=self.cache.hot_bytes, now=self._clock()
        )

    # -------------------------------------------------------------- reads

    def rows(self) -> dict[str, RowStats]:
        """Where each request stands inside its worker, by request id."""
        return {row.request_id: row for stats in self.stats.values() for row in stats.rows}

    def engine(self, model: ModelId) -> EngineObserved:
        return self._get(model)

    def _get(self, model: ModelId) -> EngineObserved:
        return self.engines.get(model, ABSENT)

    def _put(self, model: ModelId, engine: EngineObserved) -> None:
        self.engines[model] = engine
