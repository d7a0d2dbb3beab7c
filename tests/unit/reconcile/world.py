"""A simulated world around `plan`: it carries actions out and turns them into facts.

Starts and stops take steps, loads fail, workers die, requests come and go, files and settings
change. What must hold of every plan is checked at every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from omlxd.reconcile import events
from omlxd.reconcile.admission import FAIR_WAIT_S
from omlxd.reconcile.phases import WITH_WORKER
from omlxd.reconcile.plan import plan
from omlxd.reconcile.state import (
    Action,
    ConfigureEngine,
    Desired,
    DrainEngine,
    EngineObserved,
    EngineSpec,
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
from tests.unit.reconcile.build import desired

MAX_PASSES = 12  # without a fact from outside, plans must come to rest within so many
MAX_QUIET_STEPS = 400


class World:
    """The desired state, every engine, and the workers that really exist."""

    def __init__(self, *specs: EngineSpec, limit: int) -> None:
        self.desired: Desired = desired(*specs, limit=limit, spare_workers=1, start_timeout_s=100.0)
        self.engines: dict[ModelId, EngineObserved] = {}
        self.workers: set[ModelId] = set()
        self.cursed: dict[ModelId, bool] = {}  # models that cannot load → is it permanent
        self.base, self.spares, self.now = 3, 0, 1000.0
        self.stopping = False
        self.served: list[ModelId] = []
        self.refused: list[RefuseWaiting] = []

    # -------------------------------------------------------------- facts

    def engine(self, model: ModelId) -> EngineObserved:
        return self.engines.get(model, EngineObserved())

    def fact(self, model: ModelId, event: Callable[[EngineObserved], EngineObserved]) -> None:
        self.engines[model] = event(self.engine(model))

    def observed(self) -> Observed:
        return Observed(
            engines=dict(self.engines),
            base_bytes=self.base,
            spares=self.spares,
            stopping=self.stopping,
        )

    def request(self, model: ModelId) -> None:
        self.fact(model, lambda e: events.on_request_waiting(e, self.now))

    def give_up(self, model: ModelId) -> None:
        if self.engine(model).waiting:
            self.fact(model, lambda e: events.on_waiter_left(e, self.now))

    def finish(self, model: ModelId) -> None:
        if self.engine(model).in_flight and self.engine(model).loaded_at is not None:
            self.fact(model, lambda e: events.on_request_ended(e, self.now))
            self.served.append(model)

    def step(self, model: ModelId) -> None:
        """The worker gets on with what it was told: come up, load, exit."""
        engine = self.engine(model)
        if engine.phase == "starting":
            self.fact(model, lambda e: events.on_loading(e, self.now))
        elif engine.phase == "stopping":
            self.exit(model, "exit code 0")
        elif engine.phase in ("loading", "draining") and engine.loaded_at is None:
            if model in self.cursed:
                permanent = self.cursed[model]
                self.fact(
                    model,
                    lambda e: events.on_load_failed(e, self.now, message="no", permanent=permanent),
                )
            else:
                size = max(1, engine.reserved_bytes - 1)
                self.fact(model, lambda e: events.on_loaded(e, self.now, footprint_bytes=size))

    def exit(self, model: ModelId, reason: str) -> None:
        if self.engine(model).phase in WITH_WORKER:
            self.workers.remove(model)
            self.fact(model, lambda e: events.on_exited(e, self.now, reason=reason))

    # -------------------------------------------------------------- passes

    def reconcile(self) -> Plan:
        """Pass after pass until a plan asks for nothing more."""
        for _ in range(MAX_PASSES):
            made = plan(self.desired, self.observed(), self.now)
            assert made == plan(self.desired, self.observed(), self.now), "not a function"
            self._check(made)
            for action in made.actions:
                self._execute(action)
            handed = self._hand_over()
            if not made.actions and not handed:
                return made
        raise AssertionError(f"no rest after {MAX_PASSES} passes: {made}")

    def _hand_over(self) -> bool:
        before = dict(self.engines)
        for model, engine in before.items():
            for _ in range(engine.waiting if engine.phase == "ready" else 0):
                self.fact(model, events.on_request_handed)
        return before != self.engines

    def _execute(self, action: Action) -> None:
        match action:
            case StartEngine(model=model):
                assert model not in self.workers, f"a second copy of {model}"
                self.workers.add(model)
                self.spares = max(0, self.spares - 1)
                self.fact(model, lambda e: events.on_started(e, self.now, start=action))
            case ConfigureEngine(model=model, live=live):
                self.fact(model, lambda e: events.on_configured(e, live=live))
            case DrainEngine(model=model, reason=reason):
                self.fact(model, lambda e: events.on_draining(e, self.now, reason=reason))
            case ResumeEngine(model=model):
                assert self.engine(model).load == self.desired.engines[model].load
                self.fact(model, lambda e: events.on_resumed(e, self.now))
            case StopEngine(model=model, reason=reason):
                self.fact(model, lambda e: events.on_stopping(e, self.now, reason=reason))
            case RetryEngine(model=model):
                self.fact(model, lambda e: events.on_retry(e, self.now))
            case RefuseWaiting(model=model):
                self.refused.append(action)
                self.fact(model, events.on_refused)
            case KeepSpares(count=count):
                self.spares = count

    def _check(self, made: Plan) -> None:
        """What no plan may ever do."""
        ordered = [
            action.model
            for action in made.actions
            if isinstance(action, StartEngine | StopEngine | DrainEngine)
        ]
        assert len(ordered) == len(set(ordered)), f"two orders for one engine: {made.actions}"
        for action in made.actions:
            if isinstance(action, StopEngine):
                self._check_stop(action)
            elif isinstance(action, DrainEngine) and action.reason == "turn":
                assert not self.desired.engines[action.model].pin, "a pinned engine lost its turn"
                assert self.engine(action.model).phase == "ready", "a load lost its turn"
                loaded_at = self.engine(action.model).loaded_at or 0.0
                assert loaded_at <= self.now - FAIR_WAIT_S, "a turn cut short"
                waits = [e.waiting_since for e in self.engines.values() if e.waiting_since]
                assert min(waits) <= self.now - FAIR_WAIT_S, "a turn before its time"
        starts = [action for action in made.actions if isinstance(action, StartEngine)]
        held = self.base + sum(engine.held_bytes for engine in self.engines.values())
        planned = held + sum(start.reserved_bytes for start in starts)
        assert not starts or planned <= self.desired.memory_limit_bytes, "beyond the limit"
        assert not (starts and self.stopping), "a start during shutdown"

    def _check_stop(self, action: StopEngine) -> None:
        engine, spec = self.engine(action.model), self.desired.engines.get(action.model)
        if action.reason != "start_timeout":
            assert engine.in_flight == 0, f"requests run on the stopped {action.model}"
        if action.reason in ("evicted", "ttl"):
            assert engine.phase == "ready", f"{action.reason} while {engine.phase}"
            assert not engine.is_busy, f"{action.reason} while busy"
            assert spec is None or not spec.pin, f"{action.reason} though pinned"

    # -------------------------------------------------------------- coming to rest

    def come_to_rest(self) -> Plan:
        """No new facts from outside: workers do what they are told, requests end, time passes."""
        for _ in range(MAX_QUIET_STEPS):
            before = (dict(self.engines), self.spares)
            made = self.reconcile()
            for model in list(self.engines):
                self.step(model)
                self.finish(model)
            if before == (dict(self.engines), self.spares):
                if made.requeue_after is None:
                    return made
                self.now += made.requeue_after
        raise AssertionError(f"no rest: {made}, {self.engines}")

    def edit(self, model: ModelId, spec: EngineSpec | None) -> None:
        """Save another omlx.toml: one model changed, added or removed."""
        old = self.desired.engines.get(model)
        others = {m: s for m, s in self.desired.engines.items() if m != model}
        engines = others if spec is None else {**others, model: spec}
        self.desired = replace(
            self.desired, generation=self.desired.generation + 1, engines=engines
        )
        if spec and spec.preload and not (old and old.preload):
            self.fact(model, events.on_preload_asked)
