"""What a worker serves one model with, as the host drives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from omlxd.ipc.messages import FromWorker, Kind, ToWorker

EXIT_STOPPED = 0
EXIT_BROKEN = 1
EXIT_LOAD_FAILED = 3


class Side(Protocol):
    """`put` only enqueues, from any thread; `run` is a thread's body."""

    def put(self, message: ToWorker) -> None: ...

    def run(self) -> int:
        """Until the daemon says stop, or nothing can be served any more; the exit code."""
        ...


# (how frames are sent, kind of the model) → its side
MakeSide = Callable[[Callable[[FromWorker], None], Kind], Side]
