"""Supervisors of the fake worker, and a listener that keeps all it hears.

As a program (`python -m tests.fakes.supervised COMMAND…`) it is a daemon that supervises one
worker, says the worker's pid, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omlxd.daemon.supervisor import Supervisor, Worker, WorkerExit
from omlxd.ipc.messages import (
    Event,
    Events,
    FromWorker,
    Hello,
    LiveSettings,
    Load,
    LoadSettings,
)

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
LOAD = Load(LoadSettings(model_id="tiny", path="/models/tiny", kind="llm"), LiveSettings())


class Recorder:
    """A WorkerListener that keeps everything and can be waited on."""

    def __init__(self) -> None:
        self.calls: list[tuple[Worker, Any]] = []
        self._changed = asyncio.Event()

    def _record(self, worker: Worker, what: object) -> None:
        self.calls.append((worker, what))
        self._changed.set()

    def on_hello(self, worker: Worker, hello: Hello) -> None:
        self._record(worker, hello)

    def on_message(self, worker: Worker, message: FromWorker) -> None:
        self._record(worker, message)

    def on_exit(self, worker: Worker, ended: WorkerExit) -> None:
        self._record(worker, ended)

    def of(self, worker: Worker) -> list[Any]:
        return [what for who, what in self.calls if who is worker]

    def events(self, worker: Worker) -> list[Event]:
        return [e for what in self.of(worker) if isinstance(what, Events) for e in what.events]

    async def until(self, met: Callable[[], Any]) -> Any:
        """The first true value of `met`, asked again after every call."""
        while not (value := met()):
            self._changed.clear()
            await self._changed.wait()
        return value

    async def first(self, worker: Worker, kind: type) -> Any:
        return await self.until(
            lambda: next((what for what in self.of(worker) if isinstance(what, kind)), None)
        )


class Desk:
    """Supervisors of one test, closed at its end."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.supervisors: list[Supervisor] = []

    def supervisor(
        self, command: tuple[str, ...] = FAKE_WORKER, *, hello_timeout_s: float = 60, **script: Any
    ) -> Supervisor:
        made = Supervisor(
            self.recorder,
            command=command,
            environ=os.environ | {"OMLXD_FAKE_WORKER": json.dumps(script)},
            hello_timeout_s=hello_timeout_s,
        )
        self.supervisors.append(made)
        return made

    async def close(self) -> None:
        for supervisor in self.supervisors:
            await supervisor.close(0)


async def _be_a_daemon(command: list[str]) -> None:
    recorder = Recorder()
    worker = await Supervisor(recorder, command=command).spawn()
    await recorder.first(worker, Hello)
    sys.stdout.write(f"{worker.pid}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_be_a_daemon(sys.argv[1:]))
