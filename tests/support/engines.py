"""The middle of the daemon, real but for the model: controller, fleet, gateway and processes."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from omlxd.api.ports import Readiness, ServedModel, ServerSettings
from omlxd.daemon.controller import Controller
from omlxd.daemon.fleet import Fleet
from omlxd.daemon.gateway import RequestGateway, Ticket
from omlxd.daemon.journal import Journal
from omlxd.daemon.supervisor import Supervisor, WorkerExit, WorkerListener
from omlxd.ipc.messages import (
    Completed,
    Delta,
    Event,
    GenerateRequest,
    LiveSettings,
    LoadSettings,
)
from omlxd.mcp.pool import ToolPool
from omlxd.observe.events import EventRing
from omlxd.observe.metrics import Metrics
from omlxd.reconcile.phases import broken_invariants
from omlxd.reconcile.state import Desired, EngineObserved, EngineSpec
from tests.fakes.supervised import FAKE_WORKER

T = TypeVar("T")
MIB = 2**20


def spec(model: str = "m", **changes: Any) -> EngineSpec:
    """A model of 1 MiB without TTL; `load` and `live` are changed by keyword sets."""
    load: dict[str, Any] = {"model_id": model, "path": f"/models/{model}", "kind": "llm"}
    load |= changes.pop("load", {})
    live = LiveSettings(**changes.pop("live", {}))
    base = EngineSpec(load=LoadSettings(**load), live=live, estimate_bytes=MIB)
    return replace(base, **changes)


def desired(*specs: EngineSpec, generation: int = 1, **changes: Any) -> Desired:
    """Room for everything, no spare workers."""
    engines = {one.load.model_id: one for one in specs}
    base = Desired(
        generation=generation, engines=engines, memory_limit_bytes=100 * 2**30, spare_workers=0
    )
    return replace(base, **changes)


def request(model: str = "m", request_id: str = "r1", **fields: Any) -> GenerateRequest:
    given: dict[str, Any] = {"prompt": "one two three"}
    return GenerateRequest(request_id=request_id, model=model, **(given | fields))


class WarpClock:
    """The monotonic clock, which a test may turn forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


class Engines:
    """Implements the gateway's `Dispatcher`. Closed by its test; every pass is checked."""

    def __init__(
        self,
        folder: Path,
        *specs: EngineSpec,
        command: Sequence[str] = FAKE_WORKER,
        hello_timeout_s: float = 60,
        wanted: dict[str, Any] | None = None,
        **script: Any,
    ) -> None:
        self.clock = WarpClock()
        self.passes = 0
        self.ring = EventRing(folder / "events.jsonl")
        self.measured: list[str] = []
        self.controller = Controller(
            Journal(self.ring),
            on_change=self._passed,
            on_measured=lambda model, footprint, loaded: self.measured.append(model),
            clock=self.clock,
        )
        self.gateway = RequestGateway(self, Metrics(), tools=ToolPool(Path("/")), clock=self.clock)
        self.supervisor: Supervisor

        def make(listener: WorkerListener) -> Supervisor:
            self.supervisor = Supervisor(
                listener,
                command=command,
                environ=os.environ | {"OMLXD_FAKE_WORKER": json.dumps(script)},
                hello_timeout_s=hello_timeout_s,
            )
            return self.supervisor

        self.fleet = Fleet(self.controller, make)
        self.controller.gateway, self.controller.fleet = self.gateway, self.fleet
        self.controller.want(desired(*specs, **(wanted or {})))
        self._changed = asyncio.Event()
        self.running = asyncio.create_task(self.controller.run(), name="controller")

    async def close(self) -> None:
        """Ends everything; a controller that broke shows here at the latest."""
        self.running.cancel()
        await self.fleet.close(0)
        with suppress(asyncio.CancelledError):
            await self.running

    # -------------------------------------------------------------- what happens

    def _passed(self) -> None:
        self.passes += 1
        for engine in self.controller.engines.values():
            assert not broken_invariants(engine), broken_invariants(engine)
        self._changed.set()

    async def until(self, met: Callable[[], T]) -> T:
        """The first true value of `met`, asked again after every pass of the controller."""
        while not (value := met()):
            if self.running.done():
                self.running.result()
            self._changed.clear()
            changed = asyncio.create_task(self._changed.wait())
            await asyncio.wait({changed, self.running}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        return value

    async def until_phase(self, phase: str, model: str = "m") -> EngineObserved:
        await self.until(lambda: self.engine(model).phase == phase)
        return self.engine(model)

    def turn_clock(self, seconds: float) -> None:
        self.clock.ahead_s += seconds
        self.controller.wake()

    def want(self, *specs: EngineSpec, **changes: Any) -> None:
        self.controller.want(desired(*specs, **changes))

    async def fleet_at_rest(self) -> None:
        """Every spawn that was begun has ended."""
        await asyncio.gather(*self.fleet._tasks)

    async def supervisor_at_rest(self) -> None:
        """Every worker that lives now has ended."""
        await asyncio.wait(set(self.supervisor._tasks.values()))

    # -------------------------------------------------------------- what is

    def engine(self, model: str = "m") -> EngineObserved:
        return self.controller.engine(model)

    def counts(self, model: str = "m") -> tuple[int, int]:
        """Requests that wait and that are in flight."""
        return self.engine(model).waiting, self.engine(model).in_flight

    def pid(self, model: str = "m") -> int:
        worker = self.fleet.worker_of(model)
        assert worker is not None, model
        return worker.pid

    def reasons(self) -> list[str]:
        """Of the events that users see, oldest first."""
        return [event.reason for event in self.ring.since()]

    async def ask(self, asked: GenerateRequest, *, timeout_s: float | None = None) -> list[Event]:
        """Every event of a request; raises what ends it otherwise."""
        async with self.gateway.generate(asked, timeout_s=timeout_s) as events:
            return [event async for event in events]

    def asking(self, asked: GenerateRequest) -> Asking:
        return Asking(self, asked)

    # -------------------------------------------------------------- Dispatcher

    def request_arrived(self, ticket: Ticket) -> None:
        self.controller.request_arrived(ticket)

    def request_ended(self, ticket: Ticket) -> None:
        self.controller.request_ended(ticket)

    def served(self) -> tuple[ServedModel, ...]:
        return tuple(ServedModel(id=model, kind="llm") for model in self.controller.desired.engines)

    def find(self, name: str) -> ServedModel:
        return ServedModel(id=name, kind="llm")

    def resolve(self, name: str) -> ServedModel:
        return ServedModel(id=name, kind="llm")

    def readiness(self) -> Readiness:
        return Readiness(True)

    def server_settings(self) -> ServerSettings:
        return ServerSettings()

    def render_metrics(self) -> bytes:
        return b""


class Asking:
    """A client with one request under way: what it has got so far, and how it ended."""

    def __init__(self, engines: Engines, asked: GenerateRequest) -> None:
        self.events: list[Event] = []
        self._engines = engines
        self._got = asyncio.Event()
        self.task = asyncio.create_task(self._read(asked), name=f"client {asked.request_id}")

    async def _read(self, asked: GenerateRequest) -> list[Event]:
        async with self._engines.gateway.generate(asked) as events:
            async for event in events:
                self.events.append(event)
                self._got.set()
        return self.events

    async def until(self, kind: type) -> None:
        """Returns once an event of that kind has come; raises what ended the request before."""
        while not any(isinstance(event, kind) for event in self.events):
            self._got.clear()
            got = asyncio.create_task(self._got.wait())
            await asyncio.wait({got, self.task}, return_when=asyncio.FIRST_COMPLETED)
            got.cancel()
            if self.task.done() and not self._got.is_set():
                self.task.result()
                raise AssertionError(f"ended without {kind.__name__}: {self.events}")

    async def leave(self) -> None:
        """The client hangs up."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def told(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Ends every worker; the settings each was given in its life, by model."""
    heard: dict[str, list[Any]] = {}
    gone = engines.controller.worker_gone

    def listen(model: str, worker_id: int, *, why: str, how: WorkerExit | None) -> None:
        assert how is not None
        heard[model] = [json.loads(line) for line in how.last_lines]
        gone(model, worker_id, why=why, how=how)

    monkeypatch.setattr(engines.controller, "worker_gone", listen)
    engines.controller.stop()
    await engines.until(
        lambda: all(e.phase == "absent" for e in engines.controller.engines.values())
    )
    return heard


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def is_whole(events: Sequence[Event]) -> bool:
    """Ended as it should, once."""
    return [isinstance(event, Completed) for event in events].count(True) == 1 and isinstance(
        events[-1], Completed
    )
