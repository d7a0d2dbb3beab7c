"""Real child processes, real signals; the program is tests/fakes/fake_worker.py."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import uvloop

from omlxd.daemon.supervisor import WorkerExit
from omlxd.errors import ModelUnavailable, WorkerDied
from omlxd.ipc.messages import (
    Accepted,
    Cancel,
    Completed,
    Delta,
    Finished,
    GenerateRequest,
    Hello,
    Loaded,
    LoadFailed,
    Stop,
    Submit,
    TokenizerReady,
    Usage,
)
from tests.fakes.supervised import FAKE_WORKER, LOAD, Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    await desk.close()


# ------------------------------------------------------------------ life


async def test_from_hello_to_a_clean_end(desk: Desk) -> None:
    """Hello, a load, a request and Stop: everything arrives typed, in order, the exit last."""
    supervisor = desk.supervisor(tokens=2)
    worker = await supervisor.spawn()
    hello = await desk.recorder.first(worker, Hello)
    assert worker.hello == hello
    assert hello.pid == worker.pid
    assert dict(supervisor.workers) == {worker.worker_id: worker}
    worker.send(LOAD)
    assert worker.model == "tiny"
    await desk.recorder.first(worker, Loaded)
    worker.send(Submit(GenerateRequest(request_id="r1", model="tiny", prompt="one two three")))
    await desk.recorder.until(
        lambda: any(isinstance(e, Completed) for e in desk.recorder.events(worker))
    )
    worker.stop(30)
    ended = await desk.recorder.first(worker, WorkerExit)

    assert ended == WorkerExit(worker.pid, 0, None, asked=True, last_lines=())
    assert desk.recorder.of(worker)[-1] == ended
    assert [type(what) for what in desk.recorder.of(worker)[:3]] == [Hello, TokenizerReady, Loaded]
    assert desk.recorder.events(worker) == [
        Accepted("r1", 3),
        Delta("r1", 0, "one"),
        Delta("r1", 0, " two"),
        Finished("r1", 0, "stop"),
        Completed("r1", Usage(prompt_tokens=3, output_tokens=2, computed=3)),
    ]
    assert supervisor.workers == {}
    assert not psutil.pid_exists(worker.pid)


async def test_workers_are_told_apart(desk: Desk) -> None:
    """Two workers have their own ids, processes and ends."""
    supervisor = desk.supervisor()
    first, second = await supervisor.spawn(), await supervisor.spawn()
    assert first.worker_id != second.worker_id
    assert first.pid != second.pid
    first.kill()
    ended = await desk.recorder.first(first, WorkerExit)
    assert (ended.code, ended.signal, ended.asked) == (None, "SIGKILL", True)
    await desk.recorder.first(second, Hello)
    assert list(supervisor.workers) == [second.worker_id]


async def test_a_stream_can_be_cancelled(desk: Desk) -> None:
    """Cancel reaches the worker while it streams; nothing terminal follows."""
    supervisor = desk.supervisor(tokens=1_000_000, token_delay_s=0.001)
    worker = await supervisor.spawn()
    worker.send(LOAD)
    worker.send(Submit(GenerateRequest(request_id="r1", model="tiny", prompt="x")))
    await desk.recorder.until(lambda: desk.recorder.events(worker)[3:])
    worker.send(Cancel("r1"))
    await desk.recorder.until(
        lambda: getattr(desk.recorder.of(worker)[-1], "running", None) == 0,
    )
    assert {type(event) for event in desk.recorder.events(worker)} == {Accepted, Delta}


async def test_close_stops_and_reaps_all(desk: Desk) -> None:
    """After `close` no child is left, alive or as a zombie, and no new one is started."""
    supervisor = desk.supervisor()
    workers = [await supervisor.spawn() for _ in range(3)]
    await supervisor.close(30)
    assert [desk.recorder.of(worker)[-1].asked for worker in workers] == [True] * 3
    assert {worker.pid for worker in workers}.isdisjoint(
        child.pid for child in psutil.Process().children()
    )
    with pytest.raises(ModelUnavailable, match="shutting down"):
        await supervisor.spawn()


async def test_descriptors_are_given_back(desk: Desk) -> None:
    """A daemon that has run through many workers, or failed to start some, has leaked nothing."""
    before = psutil.Process().num_fds()
    supervisor = desk.supervisor()
    worker = await supervisor.spawn()
    await desk.recorder.first(worker, Hello)
    await supervisor.close(30)
    with pytest.raises(WorkerDied):
        await desk.supervisor(command=("/no/such/program",)).spawn()
    for _ in range(3):  # transports close in the turns after
        await asyncio.sleep(0)
    assert psutil.Process().num_fds() == before


async def test_close_without_workers_returns(desk: Desk) -> None:
    """A daemon that never loaded anything shuts down at once."""
    await desk.supervisor().close(30)


# ------------------------------------------------------------------ stop and die


async def test_a_worker_that_ignores_stop_is_terminated(desk: Desk) -> None:
    """SIGTERM follows when the grace is over."""
    worker = await desk.supervisor(ignore_stop=True).spawn()
    await desk.recorder.first(worker, Hello)
    worker.stop(0)
    ended = await desk.recorder.first(worker, WorkerExit)
    assert (ended.signal, ended.asked) == ("SIGTERM", True)


async def test_a_worker_that_ignores_everything_is_killed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL follows when SIGTERM does not help."""
    monkeypatch.setattr("omlxd.daemon.supervisor.KILL_AFTER_S", 0.1)
    worker = await desk.supervisor(ignore_stop=True, ignore_sigterm=True).spawn()
    await desk.recorder.first(worker, Hello)
    worker.stop(0)
    ended = await desk.recorder.first(worker, WorkerExit)
    assert (ended.signal, ended.asked) == ("SIGKILL", True)


async def test_a_second_stop_may_shorten_the_grace(desk: Desk) -> None:
    """A drain that was given an hour ends at once when the daemon has to go."""
    worker = await desk.supervisor(ignore_stop=True).spawn()
    await desk.recorder.first(worker, Hello)
    worker.stop(3600)
    worker.stop(0)
    assert (await desk.recorder.first(worker, WorkerExit)).signal == "SIGTERM"


async def test_death_in_a_stream_delivers_what_was_said(desk: Desk) -> None:
    """Every token sent before an abort arrives before the exit, which was not asked for."""
    worker = await desk.supervisor(tokens=100, die_after_tokens=50).spawn()
    worker.send(LOAD)
    worker.send(Submit(GenerateRequest(request_id="r1", model="tiny", prompt="x")))
    ended = await desk.recorder.first(worker, WorkerExit)
    assert (ended.code, ended.signal, ended.asked) == (None, "SIGKILL", False)
    assert sum(isinstance(event, Delta) for event in desk.recorder.events(worker)) == 50
    with pytest.raises(WorkerDied, match=f"worker of tiny .process {worker.pid}. is gone"):
        worker.send(Stop())


async def test_why_a_load_failed_comes_before_the_exit(desk: Desk) -> None:
    """LoadFailed is delivered although the process is gone right after it."""
    worker = await desk.supervisor(load="fail_permanent").spawn()
    worker.send(LOAD)
    ended = await desk.recorder.first(worker, WorkerExit)
    assert desk.recorder.of(worker)[-2] == LoadFailed("the script says so", permanent=True)
    assert (ended.code, ended.signal, ended.asked, ended.reason) == (1, None, False, "")


def test_workers_end_when_the_daemon_is_killed() -> None:
    """After kill -9 of the daemon its worker sees the end of the channel and exits."""
    command = [sys.executable, "-m", "tests.fakes.supervised", *FAKE_WORKER]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        worker = psutil.Process(int(daemon.stdout.readline()))
        assert worker.ppid() == daemon.pid
        daemon.kill()
    worker.wait(30)


def test_supervision_works_on_uvloop() -> None:
    """Spawn, load, an unasked death and a stop on the daemon's own event loop."""

    async def run() -> tuple[WorkerExit, WorkerExit]:
        desk = Desk()
        supervisor = desk.supervisor(print_at_start=["hi"])
        first, second = await supervisor.spawn(), await supervisor.spawn()
        first.send(LOAD)
        await desk.recorder.first(first, Loaded)
        await desk.recorder.first(second, Hello)
        os.kill(first.pid, signal.SIGKILL)
        died = await desk.recorder.first(first, WorkerExit)
        await supervisor.close(30)
        return died, desk.recorder.of(second)[-1]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        died, stopped = runner.run(run())
    assert (died.signal, died.asked, died.last_lines) == ("SIGKILL", False, ("hi",))
    assert (stopped.code, stopped.asked, stopped.last_lines) == (0, True, ("hi",))
