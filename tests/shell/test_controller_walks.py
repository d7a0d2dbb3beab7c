"""Random orders of everything that can happen to controller, fleet and gateway.

Nothing here waits for anything: loads, deaths, hang-ups, edits and the end of the grace meet each
other in every phase. After each step a pass must settle and the counts must be those of the
tickets; at the end every request has ended once and nothing is left.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from omlxd.daemon.controller import Controller
from omlxd.daemon.fleet import Fleet
from omlxd.daemon.gateway import RequestGateway, Ticket
from omlxd.daemon.journal import Journal
from omlxd.daemon.supervisor import Supervisor
from omlxd.errors import ModelUnavailable, OmlxError
from omlxd.ipc.messages import (
    PROTOCOL,
    Accepted,
    Completed,
    Delta,
    Event,
    Events,
    Failed,
    Finished,
    Hello,
    Load,
    Loaded,
    LoadFailed,
    Stats,
    Usage,
)
from omlxd.mcp.pool import ToolPool
from omlxd.observe.events import EventRing
from omlxd.observe.metrics import Metrics
from omlxd.reconcile.conditions import daemon_conditions, engine_conditions
from omlxd.reconcile.phases import broken_invariants
from omlxd.reconcile.state import EngineSpec
from tests.fakes.paper_workers import PaperSupervisor, PaperWorker
from tests.support.engines import MIB, Engines, desired, request, spec

MODELS = ("a", "b", "c")
STEPS = 250
HUGE = {"parameters": {"maximum": 10**30}}


class Walk(Engines):
    """As `Engines`, but its workers are paper and its passes are run by hand."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.controller = Controller(
            Journal(EventRing(folder / "events.jsonl")),
            on_change=self.publish,
            on_measured=lambda *_: None,
            clock=lambda: self.now,
        )
        self.gateway = RequestGateway(
            self, Metrics(), tools=ToolPool(Path("/")), clock=lambda: self.now
        )
        self.paper: PaperSupervisor

        def make(listener: Any) -> Supervisor:
            self.paper = PaperSupervisor(listener)
            return cast(Supervisor, self.paper)

        self.fleet = Fleet(self.controller, make)
        self.controller.gateway, self.controller.fleet = self.gateway, self.fleet
        self.specs: dict[str, EngineSpec] = {model: spec(model) for model in MODELS}
        self.spares = 1
        self.clients: list[tuple[Ticket, AbstractAsyncContextManager[AsyncIterator[Event]]]] = []
        self.seen: list[Ticket] = []
        self.edit()

    def request_arrived(self, ticket: Ticket) -> None:
        self.seen.append(ticket)
        super().request_arrived(ticket)

    # -------------------------------------------------------------- one step

    async def step(self) -> None:
        steps: list[tuple[int, Callable[[], Any]]] = [
            (30, self.arrive),
            (12, self.leave),
            (20, self.end_spawn),
            (15, self.hello),
            (25, self.load_ends),
            (60, self.say_something),
            (6, self.lose_channel),
            (8, self.die),
            (30, self.obey),
            (5, self.change_settings),
            (3, self.change_spares),
            (5, self.ask_user),
            (10, self.pass_time),
            (4, self.measure),
        ]
        weights = [weight for weight, _ in steps]
        ((_, chosen),) = self.random.choices(steps, weights)
        done = chosen()
        if asyncio.iscoroutine(done):
            await done
        for _ in range(4):
            await asyncio.sleep(0)
        self.check()
        if self.random.random() < 0.8:  # facts coalesce: a pass may come later
            self.controller.reconcile()
            self.check()

    def check(self) -> None:
        for model, engine in self.controller.engines.items():
            assert not broken_invariants(engine), broken_invariants(engine)
            handed = [
                t for t in self.gateway.open_tickets() if t.state == "handed" and t.model == model
            ]
            assert engine.waiting == len(self.gateway.waiting_for(model)), engine
            assert engine.in_flight == len(handed), engine
            worker = self.fleet.worker_of(model)
            has_worker = engine.phase in ("loading", "ready", "draining", "stopping")
            assert worker is None or has_worker, engine
        assert self.fleet.spares >= 0

    def publish(self) -> None:
        """As status does: every condition has a reason, whatever the last plan still says."""
        wanted, seen = self.controller.desired, self.controller.observed()
        plan = self.controller.last_plan
        told = [*daemon_conditions(wanted, seen, plan)]
        for model in wanted.engines:
            told += engine_conditions(model, wanted, seen, plan)
        assert all(condition.reason for condition in told), told

    # -------------------------------------------------------------- clients

    async def arrive(self) -> None:
        fields: dict[str, Any] = {"tools": [HUGE]} if self.random.random() < 0.05 else {}
        name = f"r{len(self.seen)}"
        context = self.gateway.generate(request(self.random.choice(MODELS), name, **fields))
        await context.__aenter__()
        self.clients.append((self.seen[-1], context))

    async def leave(self) -> None:
        if self.clients:
            _, context = self.clients.pop(self.random.randrange(len(self.clients)))
            await context.__aexit__(None, None, None)

    # -------------------------------------------------------------- workers

    def worker(self, *, asked: bool | None = None) -> PaperWorker | None:
        fits = [w for w in self.paper.workers.values() if asked in (None, w.asked)]
        return self.random.choice(fits) if fits else None

    def end_spawn(self) -> None:
        if self.paper.spawning:
            self.paper.end_spawn(works=self.random.random() < 0.9)

    def hello(self) -> None:
        worker = self.worker()
        if worker and worker.is_open and worker.hello is None:
            self.paper.say(worker, Hello(worker.pid, PROTOCOL))

    def load_ends(self) -> None:
        worker = self.worker()
        if worker is None or not worker.is_open or worker.hello is None:
            return
        loads = [one for one in worker.sent if isinstance(one, Load)]
        if not loads or getattr(worker, "loaded", False):
            return
        worker.loaded = True  # type: ignore[attr-defined]
        if self.random.random() < 0.8:
            facts = {"duration_s": 1.0, "weights_bytes": 1, "max_context": 9, "batches": True}
            self.paper.say(worker, Loaded(**facts))  # type: ignore[arg-type]
        else:
            self.paper.say(worker, LoadFailed("no", permanent=self.random.random() < 0.5))

    def say_something(self) -> None:
        worker = self.worker()
        if worker is None or not worker.is_open or not worker.submitted():
            return
        name = self.random.choice(worker.submitted())
        words: list[Event] = [
            Accepted(name, 3),
            Delta(name, 0, "x"),
            Delta(name, 0, "y"),
            Finished(name, 0, "stop"),
            Completed(name, Usage()),
            Failed(name, "engine_failed", "no"),
        ]
        said = [self.random.choice(words) for _ in range(self.random.randint(1, 3))]
        self.paper.say(worker, Events(said))
        self.paper.say(worker, Stats(running=1, waiting=0, active_bytes=1, cache_bytes=1))

    def lose_channel(self) -> None:
        if worker := self.worker():
            worker.is_open = False

    def die(self) -> None:
        if worker := self.worker():
            self.paper.exit(worker)

    def obey(self) -> None:
        if worker := self.worker(asked=True):
            self.paper.exit(worker)

    # -------------------------------------------------------------- the user, the clock

    def edit(self) -> None:
        generation = self.controller.desired.generation + 1
        self.controller.want(
            desired(
                *self.specs.values(),
                generation=generation,
                spare_workers=self.spares,
                memory_limit_bytes=self.random.choice([MIB, 2 * MIB, 100 * MIB]),
                start_timeout_s=50.0,
            )
        )

    def change_settings(self) -> None:
        model = self.random.choice(MODELS)
        if self.random.random() < 0.3:
            self.specs.pop(model, None)
        else:
            self.specs[model] = spec(
                model,
                pin=self.random.random() < 0.3,
                preload=self.random.random() < 0.3,
                ttl_s=self.random.choice([None, 5.0]),
                load={"block_tokens": self.random.choice([32, 64])},
                live={"max_queue": self.random.choice([1, 256])},
            )
        self.edit()

    def change_spares(self) -> None:
        self.spares = self.random.randint(0, 2)
        self.edit()

    def ask_user(self) -> None:
        model = self.random.choice(MODELS)
        (self.controller.load if self.random.random() < 0.6 else self.controller.unload)(model)

    def pass_time(self) -> None:
        self.now += self.random.choice([0.5, 2.0, 10.0, 61.0])

    def measure(self) -> None:
        sizes = {pid: self.random.randint(1, MIB) for pid in self.fleet.pids()}
        self.controller.footprints_measured(self.random.randint(0, MIB // 2), sizes)

    # -------------------------------------------------------------- the end

    async def shut_down(self) -> None:
        """As the daemon does: refuse, drain, give up, end; in between things go on happening."""
        self.controller.stop()
        for _ in range(20):
            await self.step()
        self.controller.give_up(ModelUnavailable("the grace is over"))
        self.check()
        for _ in range(100):
            self.controller.reconcile()
            if self.paper.spawning:
                self.paper.end_spawn(works=True)
            for worker in list(self.paper.workers.values()):
                if worker.asked or not worker.is_open:
                    self.paper.exit(worker)
            for _ in range(4):
                await asyncio.sleep(0)
            self.check()
        assert not self.paper.workers
        assert {e.in_flight for e in self.controller.engines.values()} <= {0}
        for _, context in self.clients:
            await context.__aexit__(None, None, None)
        await self.fleet.close(0)


def terminal(ticket: Ticket) -> int:
    """How often the client of it was told an end."""
    said = []
    while not ticket.inbox.empty():
        said.append(ticket.inbox.get_nowait())
    ends = [one for one in said if isinstance(one, Completed | OmlxError)]
    assert not ends or said[-1] is ends[0], said
    assert sum(isinstance(one, Accepted) for one in said) <= 1
    return len(ends)


@pytest.mark.parametrize("seed", range(40))
async def test_any_order_of_facts(tmp_path: Path, seed: int) -> None:
    """Whatever happens in whatever order: passes settle, counts are right, every end comes once."""
    walk = Walk(tmp_path, seed)
    for _ in range(STEPS):
        await walk.step()
    await walk.shut_down()
    stayed = [ticket for ticket, _ in walk.clients]
    for ticket in walk.seen:
        assert ticket.state == "ended"
        assert terminal(ticket) in ({1} if ticket in stayed else {0, 1})
