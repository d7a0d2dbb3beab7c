"""A supervisor whose workers are paper: every fact of them happens when the test says so.

`PaperSupervisor` has what `Fleet` uses of `omlxd.daemon.supervisor.Supervisor`.
"""

from __future__ import annotations

import asyncio

from omlxd.daemon.supervisor import WorkerExit, WorkerListener
from omlxd.errors import ModelUnavailable, WorkerDied
from omlxd.ipc.messages import FromWorker, Hello, Submit, ToWorker

NO_PID = 2**22 + 1  # above every process id of this machine


class PaperWorker:
    def __init__(self, worker_id: int) -> None:
        self.worker_id, self.pid = worker_id, NO_PID + worker_id
        self.hello: Hello | None = None
        self.is_open = True
        self.asked = False
        self.sent: list[ToWorker] = []

    def send(self, message: ToWorker) -> None:
        if not self.is_open:
            raise WorkerDied(f"worker {self.worker_id} is gone")
        self.sent.append(message)

    def stop(self, grace_s: float) -> None:
        self.asked = True

    def kill(self) -> None:
        self.asked = True

    def submitted(self) -> list[str]:
        """Ids of all requests it was ever given."""
        return [one.request.request_id for one in self.sent if isinstance(one, Submit)]


class PaperSupervisor:
    def __init__(self, listener: WorkerListener) -> None:
        self.workers: dict[int, PaperWorker] = {}
        self.spawning: list[asyncio.Future[bool]] = []
        self._listener = listener
        self._spawned = 0

    async def spawn(self) -> PaperWorker:
        """Waits for `end_spawn`."""
        works: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.spawning.append(works)
        if not await works:
            raise WorkerDied("cannot start a worker: out of processes")
        self._spawned += 1
        worker = PaperWorker(self._spawned)
        self.workers[worker.worker_id] = worker
        return worker

    async def close(self, grace_s: float) -> None:
        for works in self.spawning:
            works.set_exception(ModelUnavailable("omlxd is shutting down"))
        self.spawning.clear()

    # -------------------------------------------------------------- facts

    def end_spawn(self, *, works: bool) -> None:
        """The oldest spawn that is under way ends; after a turn of the loop it is known."""
        self.spawning.pop(0).set_result(works)

    def say(self, worker: PaperWorker, message: FromWorker) -> None:
        if isinstance(message, Hello):
            worker.hello = message
            self._listener.on_hello(worker, message)  # type: ignore[arg-type]
        else:
            self._listener.on_message(worker, message)  # type: ignore[arg-type]

    def exit(self, worker: PaperWorker) -> None:
        worker.is_open = False
        del self.workers[worker.worker_id]
        ended = WorkerExit(worker.pid, None, "SIGKILL", asked=worker.asked, last_lines=())
        self._listener.on_exit(worker, ended)  # type: ignore[arg-type]
