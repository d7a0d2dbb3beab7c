"""The engine of language models: one thread that owns every MLX call of one model.

`load_engine` returns at once. The engine takes `submit`, `cancel` and `configure` from the first
moment (queued until the weights are in), `facts` tells how the load ended, `ended` how the thread
ended. The thread ends on `stop()`, on a failed load, and when the model itself is broken.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from omlxd.ipc.messages import LiveSettings, LoadSettings
from omlxd.worker.ports import EngineFacts, EngineListener, RowJob


class LoadError(Exception):
    """The model cannot be loaded; `permanent` = not before its files or settings change."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


class LmEngine:
    """One model under continuous batching; implements `ports.Engine`."""

    def __init__(self, load: LoadSettings, live: LiveSettings, listener: EngineListener) -> None:
        self.facts: Future[EngineFacts] = Future()  # or LoadError
        self.ended: Future[None] = Future()  # None after stop(); else what broke the engine
        self._load, self._live, self._listener = load, live, listener
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine")

    def start(self) -> None:
        self._thread.start()

    def submit(self, rows: Sequence[RowJob]) -> None:
        raise NotImplementedError

    def cancel(self, request_id: str, index: int | None = None) -> None:
        raise NotImplementedError

    def configure(self, live: LiveSettings) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """End the thread after its present step and wait for it; running rows get no event."""
        raise NotImplementedError

    def _run(self) -> None:
        raise NotImplementedError


def load_engine(load: LoadSettings, live: LiveSettings, listener: EngineListener) -> LmEngine:
    """Start the engine thread; the weights load there. Never blocks, never raises."""
    engine = LmEngine(load, live, listener)
    engine.start()
    return engine
