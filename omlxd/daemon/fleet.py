"""Which worker process runs which engine, and the warm ones that run none yet.

Executes what the controller decided; decides nothing but the choice of a spare. Everything that
happens to a worker comes back through `FleetFacts`, on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from omlxd.daemon.supervisor import Supervisor, Worker, WorkerExit, WorkerListener
from omlxd.errors import OmlxError, WorkerDied
from omlxd.ipc.messages import (
    Configure,
    FromWorker,
    Hello,
    LiveSettings,
    Load,
    LoadSettings,
    ToWorker,
)
from omlxd.observe import log
from omlxd.reconcile.state import ModelId

STOP_GRACE_S = 5.0  # from Stop to SIGTERM; nothing runs on the worker any more
SPARE_PAUSE_S = 30.0  # after a spare died by itself


class FleetFacts(Protocol):
    """What the controller is told."""

    def worker_loading(self, model: ModelId) -> None:
        """The engine has a process and it was told what to load."""
        ...

    def worker_message(self, model: ModelId, worker: Worker, message: FromWorker) -> None: ...

    def worker_gone(
        self, model: ModelId, worker_id: int, *, why: str, how: WorkerExit | None
    ) -> None:
        """The engine's process ended, or could not be started (`how` is None)."""
        ...

    def spares_changed(self) -> None: ...


def describe(how: WorkerExit) -> str:
    """One phrase for messages and conditions."""
    ended = f"signal {how.signal}" if how.signal else f"exit code {how.code}"
    killed = f"; it {how.reason}" if how.reason else ""
    last = f"; its last words: {how.last_lines[-1]}" if how.last_lines else ""
    return f"its process (pid {how.pid}) ended with {ended}{killed}{last}"


class Fleet(WorkerListener):
    """Owns the mapping of engines to workers."""

    def __init__(self, facts: FleetFacts, make: Callable[[WorkerListener], Supervisor]) -> None:
        self._facts = facts
        self._supervisor = make(self)
        self._by_model: dict[ModelId, Worker] = {}
        self._model_of: dict[int, ModelId] = {}
        self._spares: list[Worker] = []
        self._warming = 0
        self._unwanted = 0  # spares that end as soon as they exist
        self._pauses: list[asyncio.TimerHandle] = []  # one for each spare that died by itself
        self._spawning: dict[ModelId, tuple[LoadSettings, LiveSettings] | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    # -------------------------------------------------------------- orders

    def start(self, model: ModelId, load: LoadSettings, live: LiveSettings) -> None:
        """Give the engine a process: a spare if there is one, else a new one."""
        assert model not in self._by_model, model
        assert model not in self._spawning, model
        self._spares.sort(key=lambda worker: worker.hello is None)  # the warm ones first
        while self._spares:
            spare = self._spares.pop(0)
            try:
                spare.send(Load(load, live))
            except WorkerDied:
                continue  # its exit is on the way; it is not this engine's death
            self._assign(model, spare)
            return
        self._spawning[model] = (load, live)
        self._run(self._spawn_for(model), f"spawn {model}")

    def configure(self, model: ModelId, live: LiveSettings) -> None:
        """Hand over newer settings; a process that is yet to come begins with them."""
        pending = self._spawning.get(model)
        if pending is not None:
            self._spawning[model] = (pending[0], live)
        elif model in self._by_model:
            self._tell(model, Configure(live))

    def stop(self, model: ModelId) -> None:
        """End the engine's process; `worker_gone` follows. No harm twice, or after the end."""
        if model in self._spawning:
            self._spawning[model] = None  # ended as soon as it exists
        elif model in self._by_model:
            self._by_model[model].stop(STOP_GRACE_S)

    def keep_spares(self, count: int) -> None:
        """Bring `spares` to `count`."""
        while self.spares > count:
            self._drop_spare()
        while self.spares < count:
            self._warming += 1
            if self._unwanted:
                self._unwanted -= 1
            else:
                self._run(self._spawn_spare(), "spawn spare")

    def kill(self) -> None:
        """End every process now; nothing is awaited."""
        for worker in self._supervisor.workers.values():
            worker.kill()

    async def close(self, grace_s: float) -> None:
        """End every worker; returns when all are reaped."""
        self._closing = True
        await self._supervisor.close(grace_s)
        await asyncio.gather(*self._tasks)  # a spawn is not cut off: half a process would be left
        while self._pauses:
            self._pauses.pop().cancel()

    # -------------------------------------------------------------- what is

    @property
    def spares(self) -> int:
        """Warm, warming, or mourned: what `keep_spares` counts."""
        return len(self._spares) + self._warming + len(self._pauses)

    def worker_of(self, model: ModelId) -> Worker | None:
        return self._by_model.get(model)

    def pids(self) -> dict[int, ModelId | None]:
        """Every worker's pid and the engine it runs."""
        return {
            worker.pid: self._model_of.get(worker.worker_id)
            for worker in self._supervisor.workers.values()
        }

    # -------------------------------------------------------------- WorkerListener

    def on_hello(self, worker: Worker, hello: Hello) -> None:
        log.get().debug("worker_hello", pid=worker.pid, versions=hello.versions)

    def on_message(self, worker: Worker, message: FromWorker) -> None:
        model = self._model_of.get(worker.worker_id)
        if model is not None:
            self._facts.worker_message(model, worker, message)

    def on_exit(self, worker: Worker, exit_: WorkerExit) -> None:
        model = self._model_of.pop(worker.worker_id, None)
        if model is not None:
            del self._by_model[model]
            self._facts.worker_gone(model, worker.worker_id, why=describe(exit_), how=exit_)
        elif worker in self._spares:
            self._spares.remove(worker)
            self._mourn(describe(exit_))

    # -------------------------------------------------------------- inside

    def _tell(self, model: ModelId, message: ToWorker) -> None:
        try:
            self._by_model[model].send(message)
        except WorkerDied:
            # Its exit is on the way; whoever starts the next worker gives it newer settings.
            log.get().debug("message_after_exit", model=model, message=type(message).__name__)

    def _assign(self, model: ModelId, worker: Worker) -> None:
        self._by_model[model] = worker
        self._model_of[worker.worker_id] = model
        self._facts.worker_loading(model)

    async def _spawn_for(self, model: ModelId) -> None:
        try:
            worker = await self._supervisor.spawn()
        except OmlxError as error:
            del self._spawning[model]
            self._facts.worker_gone(model, 0, why=error.message, how=None)
            return
        settings = self._spawning.pop(model)
        self._assign(model, worker)
        if settings is None:
            worker.stop(0.0)
        else:
            self._tell(model, Load(*settings))

    async def _spawn_spare(self) -> None:
        worker: Worker | None = None
        why = ""
        try:
            worker = await self._supervisor.spawn()
        except OmlxError as error:
            why = error.message
        if self._unwanted:
            self._unwanted -= 1
            if worker is not None:
                worker.stop(0.0)
            return
        self._warming -= 1
        if worker is not None:
            self._spares.append(worker)
        else:
            self._mourn(why)

    def _drop_spare(self) -> None:
        """One less: rather one that died than one that lives, than one that is on its way."""
        if self._pauses:
            self._pauses.pop().cancel()
        elif self._spares:
            self._spares.pop().stop(STOP_GRACE_S)
        else:
            self._warming -= 1
            self._unwanted += 1

    def _mourn(self, why: str) -> None:
        """A spare died by itself: no new one at once, or a broken install would spin."""
        if self._closing:
            return
        log.get().warning("spare_worker_lost", reason=why, retry_s=SPARE_PAUSE_S)
        loop = asyncio.get_running_loop()
        self._pauses.append(loop.call_later(SPARE_PAUSE_S, self._mourned))

    def _mourned(self) -> None:
        del self._pauses[0]  # all pauses are as long, so the oldest is over
        self._facts.spares_changed()

    def _run(self, body: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(body, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
