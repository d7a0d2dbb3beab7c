"""A worker that hangs is ended, one that works or rests is left alone; real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from omlxd.daemon.watchdog import LONGEST_LOOK_S, Watchdog
from omlxd.errors import WorkerDied
from omlxd.ipc.messages import Delta
from tests.support.engines import Asking, Engines, request, spec

Make = Callable[..., Engines]
HUNG_S = 8.0


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Engines] = []

    def build(**script: object) -> Engines:
        endless = {"tokens": 1_000_000, "token_delay_s": 0.001}
        made.append(Engines(tmp_path, spec(), **(endless | script)))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for engines in made:
        await engines.close()


async def streaming(engines: Engines) -> Asking:
    client = engines.asking(request())
    await client.until(Delta)
    return client


async def hold(engines: Engines) -> None:
    """Stops the worker as a hung one would; returns when all that it had sent is read."""
    worker = engines.fleet.worker_of("m")
    assert worker is not None
    os.kill(worker.pid, signal.SIGSTOP)
    heard = -1
    while psutil.Process(worker.pid).status() != "stopped" or heard != worker.num_frames:
        heard = worker.num_frames
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.mark.parametrize("drains", [False, True])
async def test_a_hung_worker_is_ended_and_its_end_is_a_death(make: Make, drains: bool) -> None:
    """Its requests hear of it, and the reason says for how long nothing came."""
    engines = make()
    client = await streaming(engines)
    if drains:
        engines.controller.unload("m")
        await engines.until_phase("draining")
    await hold(engines)
    watchdog = Watchdog(engines.controller, hung_s=HUNG_S)
    for now in (0.0, 4.0, 7.9):
        watchdog.look(now)
    assert engines.engine().phase == ("draining" if drains else "ready")
    watchdog.look(8.0)
    with pytest.raises(WorkerDied, match="sent nothing for 8 s"):
        await client.task
    assert len(engines.engine().deaths) == 1


async def test_a_worker_that_sends_is_left_alone(make: Make) -> None:
    """Whatever it sends begins the count anew."""
    engines = make()
    client = await streaming(engines)
    watchdog = Watchdog(engines.controller, hung_s=HUNG_S)
    for number in range(10):
        watchdog.look(number * 4.0)
        client.events.clear()
        await client.until(Delta)
    assert engines.engine().phase == "ready"
    await client.leave()


async def test_a_worker_at_rest_is_left_alone(make: Make) -> None:
    """Without requests there is nothing to say; the count begins with the first."""
    engines = make(tokens=1)
    await engines.ask(request())
    watchdog = Watchdog(engines.controller, hung_s=HUNG_S)
    for number in range(10):
        watchdog.look(number * 4.0)
    assert engines.engine().phase == "ready"
    await engines.ask(request(request_id="next"))


async def test_time_that_the_daemon_missed_does_not_count(make: Make) -> None:
    """After a sleep of hours the worker's frames may be there, unread."""
    engines = make()
    client = await streaming(engines)
    await hold(engines)
    watchdog = Watchdog(engines.controller, hung_s=LONGEST_LOOK_S + 1)
    watchdog.look(0.0)
    watchdog.look(10_000.0)
    assert engines.supervisor.workers
    os.kill(engines.pid(), signal.SIGCONT)
    client.events.clear()
    await client.until(Delta)
    watchdog.look(20_000.0)
    client.events.clear()
    await client.until(Delta)
    await client.leave()
