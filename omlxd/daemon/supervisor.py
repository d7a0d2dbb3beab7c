"""Worker processes: spawned, never forked, listened to, stopped, reaped.

A worker talks over a socket pair; what it prints goes to the log. It belongs to the daemon's
process group and sees its channel end when the daemon dies, however that happens.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import psutil

from omlxd.daemon.worker_environment import worker_environment
from omlxd.daemon.worker_output import WorkerOutput, output_pipe
from omlxd.errors import ModelUnavailable, WorkerDied
from omlxd.ipc.channel import AsyncChannel, ChannelClosed, TruncatedFrame
from omlxd.ipc.messages import PROTOCOL, FromWorker, Hello, Load, Stop, ToWorker
from omlxd.observe import log

# -P: the folder the daemon was started in must not lend modules to a worker.
WORKER_COMMAND = (sys.executable, "-P", "-m", "omlxd.worker")

HELLO_TIMEOUT_S = 60.0
KILL_AFTER_S = 2.0  # from SIGTERM to SIGKILL
LINGER_S = 5.0  # a worker that closed its channel may take this long to exit
DRAIN_S = 2.0  # what a dead worker left in its pipes; some other process may hold them open


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How a worker ended. Either `code` or `signal` is set."""

    pid: int
    code: int | None
    signal: str | None  # "SIGKILL"
    asked: bool  # by `stop` or `kill`
    last_lines: tuple[str, ...]  # of its output
    reason: str = ""  # why the supervisor killed it, if it did


class WorkerListener(Protocol):
    """Called on the event loop, each worker's in order, never before `spawn` has returned."""

    def on_hello(self, worker: Worker, hello: Hello, /) -> None: ...

    def on_message(self, worker: Worker, message: FromWorker, /) -> None: ...

    def on_exit(self, worker: Worker, ended: WorkerExit, /) -> None:
        """Exactly once, and last."""
        ...


class Worker:
    """One child process. Made by `Supervisor.spawn`; never replaced by another process."""

    _channel: AsyncChannel
    _output: WorkerOutput
    _process: asyncio.subprocess.Process

    def __init__(self, worker_id: int, listener: WorkerListener) -> None:
        self.worker_id = worker_id
        self.started_at = time.monotonic()
        self.hello: Hello | None = None
        self.model = ""  # of the Load it was sent
        self.num_frames = 0  # that it has sent
        self._listener = listener
        self._channel_ended = asyncio.Event()
        self._timers: list[asyncio.TimerHandle] = []
        self._asked = False
        self._reason = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToWorker) -> None:
        """Never blocks. Raises WorkerDied when it is known to be gone, FramingError if too big."""
        if isinstance(message, Load):
            self.model = message.load.model_id
        try:
            self._channel.send(message)
        except ChannelClosed as error:
            raise WorkerDied(
                f"the worker of {self.model or 'no model'} (process {self.pid}) is gone; "
                "try again, a new one will be started"
            ) from error

    def stop(self, grace_s: float) -> None:
        """Sends Stop; SIGTERM if it is still there after `grace_s`, SIGKILL 2 s later.

        Called again, the newest grace counts. The end is reported by `on_exit`.
        """
        if not self._asked:
            self._asked = True
            with suppress(ChannelClosed):  # then the signals will do
                self._channel.send(Stop())
        self._cancel_timers()
        self._later(grace_s, self._signal, signal.SIGTERM)
        self._later(grace_s + KILL_AFTER_S, self._signal, signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL now. The end is reported by `on_exit`."""
        self._asked = True
        self._signal(signal.SIGKILL)

    def give_up(self, reason: str) -> None:
        """SIGKILL now, and not because anybody asked: `on_exit` has the first reason."""
        self._reason = self._reason or reason
        self._channel.close()
        self._signal(signal.SIGKILL)

    # ---------------------------------------------------------------- for the supervisor

    async def _start(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        read_end, write_end = output_pipe()
        with theirs, write_end:
            self._output = await WorkerOutput.open(read_end, self._on_line)
            self._channel = await AsyncChannel.open(
                ours, FromWorker, on_message=self._on_message, on_close=self._on_channel_closed
            )
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    "--fd",
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=write_end,
                    env=environ,
                    pass_fds=(theirs.fileno(),),
                )
            except BaseException:
                self._asked = True
                self._channel.close()
                self._output.close()
                raise

    async def _run(self, hello_timeout_s: float) -> WorkerExit:
        if not self._asked:
            late = f"did not say Hello within {hello_timeout_s:g} s"
            self._later(hello_timeout_s, self.give_up, late)
        self._channel.start()
        self._output.start()
        code = await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._channel_ended.wait()
                await self._output.ended.wait()
        self._channel.close()
        self._output.close()
        await self._channel_ended.wait()
        await self._output.ended.wait()
        self._cancel_timers()
        return WorkerExit(
            pid=self.pid,
            code=code if code >= 0 else None,
            signal=_signal_name(-code) if code < 0 else None,
            asked=self._asked,
            last_lines=self._output.last_lines,
            reason=self._reason,
        )

    def _on_message(self, message: FromWorker) -> None:
        self.num_frames += 1
        if self.hello is not None:
            if isinstance(message, Hello):
                self.give_up("said Hello twice")
            else:
                self._listener.on_message(self, message)
        elif problem := _hello_problem(message):
            self.give_up(problem)
        else:
            assert isinstance(message, Hello)
            self.hello = message
            if not self._asked:
                self._cancel_timers()
            self._listener.on_hello(self, message)

    def _on_channel_closed(self, error: Exception | None) -> None:
        self._channel_ended.set()
        if error is not None and not isinstance(error, TruncatedFrame):
            self.give_up(f"its channel broke: {error}")
        elif not self._asked:
            self._later(LINGER_S, self.give_up, "closed its channel and did not exit")

    def _on_line(self, line: str) -> None:
        log.get().info("worker_output", model=self.model, pid=self.pid, line=line)

    def _signal(self, number: signal.Signals) -> None:
        # Not Process.send_signal: it polls first, which may take the exit status away from the
        # loop's own child watcher.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _later(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay_s, call, *args))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


class Supervisor:
    """Owns every child process of the daemon. Lives on one event loop."""

    def __init__(
        self,
        listener: WorkerListener,
        *,
        command: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        hello_timeout_s: float = HELLO_TIMEOUT_S,
    ) -> None:
        """`command` gets `--fd N` appended; `environ` is what the worker's is made from."""
        self._listener = listener
        self._command = tuple(command or WORKER_COMMAND)
        self._environ = worker_environment(
            sys.platform,
            os.environ if environ is None else environ,
            lambda path: Path(path).exists(),
            physical_cores=_physical_cores(),
        )
        self._hello_timeout_s = hello_timeout_s
        self._workers: dict[int, Worker] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._spawned = 0
        self._spawn_lock = asyncio.Lock()
        self._closing = False

    @property
    def workers(self) -> Mapping[int, Worker]:
        """By worker_id: all that are not reaped yet."""
        return MappingProxyType(self._workers)

    async def spawn(self) -> Worker:
        """A new process; it is of use once it said Hello.

        Raises WorkerDied if it cannot be started, ModelUnavailable after `close`.
        """
        async with self._spawn_lock:
            if self._closing:
                raise ModelUnavailable("omlxd is shutting down: no worker is started any more")
            self._spawned += 1
            worker = Worker(self._spawned, self._listener)
            try:
                await worker._start(self._command, self._environ)
            except OSError as error:
                raise WorkerDied(f"cannot start a worker ({self._command[0]}): {error}") from error
            self._workers[worker.worker_id] = worker
            self._tasks[worker.worker_id] = asyncio.create_task(
                self._watch(worker), name=f"worker-{worker.worker_id}"
            )
            return worker

    async def close(self, grace_s: float) -> None:
        """Stops all workers; returns when all are reaped. No new ones from now on."""
        self._closing = True
        async with self._spawn_lock:
            tasks = list(self._tasks.values())
        for worker in self._workers.values():
            worker.stop(grace_s)
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            task.result()  # a listener's own error

    async def _watch(self, worker: Worker) -> None:
        ended = await worker._run(self._hello_timeout_s)
        del self._workers[worker.worker_id], self._tasks[worker.worker_id]
        self._listener.on_exit(worker, ended)


def _hello_problem(message: FromWorker) -> str:
    if not isinstance(message, Hello):
        return f"said {type(message).__name__} before Hello"
    if message.protocol != PROTOCOL:
        return (
            f"speaks protocol {message.protocol}, this daemon {PROTOCOL}: omlxd was upgraded under "
            "it; restart the daemon"
        )
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"SIG{number}"


def _physical_cores() -> int:
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return min(cores, len(os.sched_getaffinity(0))) if sys.platform == "linux" else cores
