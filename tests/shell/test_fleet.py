"""Which process runs which engine; real processes of tests/fakes/fake_worker.py."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import psutil
import pytest

from omlxd.daemon.fleet import Fleet
from omlxd.daemon.supervisor import Supervisor, Worker, WorkerExit, WorkerListener
from omlxd.ipc.messages import FromWorker, LiveSettings, LoadSettings
from tests.fakes.supervised import FAKE_WORKER

LOAD = LoadSettings(model_id="m", path="/models/m", kind="llm")
LIVE = LiveSettings()


class Facts:
    """A `FleetFacts` that keeps what it was told and can be waited on."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._changed = asyncio.Event()

    def _tell(self, *what: Any) -> None:
        self.told.append(what)
        self._changed.set()

    def worker_loading(self, model: str) -> None:
        self._tell("loading", model)

    def worker_message(self, model: str, worker: Worker, message: FromWorker) -> None:
        self._tell(type(message).__name__, model)

    def worker_gone(self, model: str, worker_id: int, *, why: str, how: WorkerExit | None) -> None:
        self._tell("gone", model, why, how)

    def spares_changed(self) -> None:
        self._tell("spares")

    async def until(self, *what: str) -> tuple[Any, ...]:
        """The first fact that begins so."""
        while True:
            for told in self.told:
                if told[: len(what)] == what:
                    return told
            self._changed.clear()
            await self._changed.wait()


class Bench:
    """A fleet of one test."""

    def __init__(
        self, *, command: tuple[str, ...] = FAKE_WORKER, hello_timeout_s: float = 60, **script: Any
    ) -> None:
        self.facts = Facts()
        self.supervisor: Supervisor

        def make(listener: WorkerListener) -> Supervisor:
            self.supervisor = Supervisor(
                listener,
                command=command,
                environ=os.environ | {"OMLXD_FAKE_WORKER": json.dumps(script)},
                hello_timeout_s=hello_timeout_s,
            )
            return self.supervisor

        self.fleet = Fleet(self.facts, make)

    async def spawned(self) -> None:
        """Every spawn that was begun has ended."""
        await asyncio.gather(*self.fleet._tasks)

    async def no_worker_left(self) -> None:
        while self.supervisor._tasks:
            await asyncio.wait(set(self.supervisor._tasks.values()))


Make = Callable[..., Bench]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Bench] = []

    def build(**options: Any) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield build
    for bench in made:
        await bench.fleet.close(0)


# ------------------------------------------------------------------ engines


async def test_an_engine_from_start_to_end(make: Make) -> None:
    """It loads, says so, is stopped, and its end is told once, with how it ended."""
    bench = make()
    bench.fleet.start("m", LOAD, LIVE)
    assert bench.fleet.worker_of("m") is None
    await bench.facts.until("Loaded", "m")
    worker = bench.fleet.worker_of("m")
    assert worker is not None
    assert bench.fleet.pids() == {worker.pid: "m"}
    bench.fleet.stop("m")
    bench.fleet.stop("m")
    *_, how = await bench.facts.until("gone", "m")
    assert (how.code, how.asked) == (0, True)
    assert [told[0] for told in bench.facts.told] == [
        *("loading", "TokenizerReady", "Loaded", "gone")
    ]
    bench.fleet.stop("m")  # nothing left to stop
    assert bench.fleet.pids() == {}


async def test_a_program_that_cannot_be_started_is_told(make: Make) -> None:
    """The engine is gone before it had a process, and may be started again."""
    bench = make(command=("/no/such/program",))
    for _ in range(2):
        bench.fleet.start("m", LOAD, LIVE)
        _, _, why, how = await bench.facts.until("gone", "m")
        assert "/no/such/program" in why
        assert how is None
        bench.facts.told.clear()


async def test_stop_before_there_is_a_process(make: Make) -> None:
    """The process ends as soon as it exists, without a load."""
    bench = make()
    bench.fleet.start("m", LOAD, LIVE)
    bench.fleet.stop("m")
    bench.fleet.stop("m")
    *_, how = await bench.facts.until("gone", "m")
    assert how.asked
    assert ("Loaded", "m") not in bench.facts.told


async def test_settings_reach_the_worker(make: Make) -> None:
    """With the load and later; for a worker that is just gone they are no error."""
    bench = make(print_settings=True)
    bench.fleet.start("m", LOAD, LiveSettings(max_queue=1))
    await bench.facts.until("Loaded", "m")
    bench.fleet.configure("m", LiveSettings(max_queue=2))
    bench.fleet.stop("m")
    bench.fleet.configure("m", LiveSettings(max_queue=3))  # behind the order to stop
    *_, how = await bench.facts.until("gone", "m")
    told = [json.loads(line)["max_queue"] for line in how.last_lines]
    assert told == [1, 2]


async def test_configure_meets_a_closed_channel(make: Make) -> None:
    """Settings for a worker that went away are dropped, and its end is told as ever."""
    bench = make(close_channel=True)
    bench.fleet.start("m", LOAD, LIVE)
    await bench.spawned()
    worker = bench.fleet.worker_of("m")
    assert worker is not None
    await worker._channel_ended.wait()
    bench.fleet.configure("m", LIVE)
    worker.kill()
    await bench.facts.until("gone", "m")


async def test_kill_spares_nobody_and_no_stranger(make: Make) -> None:
    """Every process is killed; one that was reaped and not yet forgotten is no error."""
    bench = make()
    bench.fleet.start("m", LOAD, LIVE)
    bench.fleet.keep_spares(1)
    await bench.facts.until("Loaded", "m")
    await bench.spawned()
    gone, alive = (psutil.Process(pid) for pid in bench.fleet.pids())
    gone.kill()
    gone.wait(10)  # the loop has not turned, so it is still among the workers
    bench.fleet.kill()
    alive.wait(10)
    await bench.no_worker_left()


async def test_close_in_the_middle_of_spawns(make: Make) -> None:
    """Processes that are only being made are ended and reaped too."""
    bench = make()
    bench.fleet.start("m", LOAD, LIVE)
    bench.fleet.keep_spares(3)
    await asyncio.sleep(0)
    await bench.fleet.close(5)
    assert bench.supervisor.workers == {}
    assert psutil.Process().children() == []


# ------------------------------------------------------------------ spares


async def test_a_spare_becomes_an_engine(make: Make) -> None:
    """The process that is already there loads the model; none is spawned."""
    bench = make()
    bench.fleet.keep_spares(1)
    await bench.spawned()
    (pid,) = bench.fleet.pids()
    bench.fleet.start("m", LOAD, LIVE)
    assert bench.fleet.pids() == {pid: "m"}
    assert bench.fleet.spares == 0
    await bench.facts.until("Loaded", "m")


async def test_a_spare_that_is_just_gone_is_not_taken(make: Make) -> None:
    """Its death is not the engine's: the engine gets another process."""
    bench = make(close_channel=True)
    bench.fleet.keep_spares(1)
    await bench.spawned()
    (spare,) = bench.supervisor.workers.values()
    await spare._channel_ended.wait()
    bench.fleet.start("m", LOAD, LIVE)
    await bench.spawned()
    worker = bench.fleet.worker_of("m")
    assert worker is not None
    assert worker.pid != spare.pid
    spare.kill()
    worker.kill()
    *_, how = await bench.facts.until("gone", "m")
    assert how.pid == worker.pid


async def test_fewer_spares_at_any_time(make: Make) -> None:
    """Living, being made, or mourned: the number asked for is the number at once."""
    bench = make()
    bench.fleet.keep_spares(2)
    bench.fleet.keep_spares(1)
    assert bench.fleet.spares == 1
    bench.fleet.keep_spares(2)  # the one that was given up is wanted again
    await bench.spawned()
    assert len(bench.supervisor.workers) == 2
    assert bench.fleet.spares == 2
    bench.fleet.keep_spares(0)
    assert bench.fleet.spares == 0
    await bench.no_worker_left()
    assert bench.facts.told == []


@pytest.mark.parametrize(
    "fault",
    [{"protocol": 99}, {"hello": False, "hello_timeout_s": 0.05}, {"command": ("/no/program",)}],
    ids=["another release", "silent", "no program"],
)
async def test_a_spare_that_dies_is_not_replaced_at_once(make: Make, fault: dict[str, Any]) -> None:
    """It counts as present for a while, so that a broken install does not spin."""
    bench = make(**fault)
    bench.fleet.keep_spares(1)
    await bench.spawned()
    await bench.no_worker_left()
    assert bench.fleet.spares == 1
    bench.fleet.keep_spares(1)
    assert bench.fleet._tasks == set()
    bench.fleet.keep_spares(0)
    assert bench.fleet.spares == 0


async def test_after_the_pause_it_is_missed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the pause is over the spare is missing, and somebody is told."""
    monkeypatch.setattr("omlxd.daemon.fleet.SPARE_PAUSE_S", 0.01)
    bench = make(protocol=99)
    bench.fleet.keep_spares(1)
    await bench.facts.until("spares")
    assert bench.fleet.spares == 0
