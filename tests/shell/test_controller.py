"""The controller with real processes under it: loads, requests, deaths, and all that crosses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from omlxd.errors import (
    ModelNotFound,
    ModelUnavailable,
    QueueFull,
    RequestInvalid,
    WorkerDied,
)
from omlxd.ipc.messages import Accepted, Delta
from tests.support.engines import Engines, is_whole, request, spec, text_of

Make = Callable[..., Engines]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Engines] = []

    def build(*args: object, **script: object) -> Engines:
        made.append(Engines(tmp_path, *args, **script))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for engines in made:
        await engines.close()


# ------------------------------------------------------------------ loads and requests


async def test_a_request_loads_its_model(make: Make) -> None:
    """An absent model is loaded for the request that wants it, once for all that wait."""
    engines = make(spec())
    first, second = await asyncio.gather(
        engines.ask(request(request_id="a")), engines.ask(request(request_id="b"))
    )
    assert is_whole(first)
    assert is_whole(second)
    assert text_of(first) == "one two three one two"
    engine = await engines.until_phase("ready")
    assert engines.counts() == (0, 0)
    assert engine.restarts == 0
    assert engines.reasons() == ["Loaded"]


async def test_nothing_runs_at_rest(make: Make) -> None:
    """With everything settled there is no further pass until something happens."""
    engines = make(spec(pin=True))
    await engines.until_phase("ready")
    await engines.until(lambda: engines.controller.is_settled)
    for _ in range(20):  # what the load itself had woken comes to its end
        await asyncio.sleep(0)
    passes = engines.passes
    for _ in range(200):
        await asyncio.sleep(0)
    assert engines.passes == passes
    assert engines.controller.last_plan.requeue_after is None


async def test_a_client_may_leave_in_every_phase(make: Make) -> None:
    """Waiting, handed to a loading worker, or streaming: no count and no ticket stays behind."""
    engines = make(spec(), load_delay_s=0.3, tokens=1_000_000, token_delay_s=0.001)
    waiting = engines.asking(request(request_id="waiting"))
    await asyncio.sleep(0)
    assert engines.counts() == (1, 0)
    await waiting.leave()
    assert engines.counts() == (0, 0)
    handed = engines.asking(request(request_id="handed"))
    await engines.until(lambda: engines.counts() == (0, 1))
    assert engines.engine().phase == "loading"
    await handed.leave()
    assert engines.counts() == (0, 0)
    streaming = engines.asking(request(request_id="streaming"))
    await streaming.until(Delta)
    await streaming.leave()
    await engines.until(lambda: engines.counts() == (0, 0))
    assert engines.gateway.open_tickets() == []
    assert engines.engine().phase == "ready"


async def test_a_full_queue_refuses_the_next(make: Make) -> None:
    """Requests that wait for a model beyond scheduler.max_queue get 503 at once, others stay."""
    engines = make(spec(live={"max_queue": 1}))
    first = engines.asking(request(request_id="first"))
    await asyncio.sleep(0)
    with pytest.raises(QueueFull, match=r"is full: 1 waiting, scheduler\.max_queue is 1;"):
        await engines.ask(request(request_id="second"))
    assert is_whole(await first.task)


async def test_an_integer_no_frame_can_carry_fails_its_request_only(make: Make) -> None:
    """Numbers beyond 64 bits are valid JSON; they end their own request and nothing else."""
    engines = make(spec())
    huge = {"type": "function", "function": {"parameters": {"maximum": 10**30}}}
    with pytest.raises(RequestInvalid, match="64 bits"):
        await engines.ask(request(tools=[huge]))
    assert engines.counts() == (0, 0)
    assert is_whole(await engines.ask(request(request_id="next")))


async def test_a_removed_model_refuses_who_waits(make: Make) -> None:
    """Requests that wait for a model which is served no longer hear so at once."""
    engines = make(spec(), load="die")
    asking = engines.asking(request())
    await engines.until_phase("backoff")
    engines.want(generation=2)
    with pytest.raises(ModelNotFound, match="no longer served"):
        await asking.task
    await engines.until(lambda: not engines.controller.engines)


# ------------------------------------------------------------------ deaths


async def test_death_in_load_is_retried(make: Make, tmp_path: Path) -> None:
    """A worker that dies while it loads is started again, and its request is answered."""
    engines = make(spec(), load="die", once=str(tmp_path / "died"))
    asking = engines.asking(request())
    engine = await engines.until_phase("backoff")
    assert engines.counts() == (1, 0)
    assert "SIGKILL" in engine.failure
    engines.turn_clock(1)
    assert is_whole(await asking.task)
    assert (engines.engine().restarts, engines.engine().failure) == (1, "")


async def test_a_request_is_retried_once(make: Make) -> None:
    """The second worker that dies under a request ends it; the fifth death ends the retries."""
    engines = make(spec(), load="die")
    asking = engines.asking(request())
    await engines.until_phase("backoff")
    engines.turn_clock(1)
    with pytest.raises(WorkerDied, match="ended while it worked on this request"):
        await asking.task
    for _ in range(3):
        engines.controller.load("m")
        engines.turn_clock(60)
        await engines.until(lambda: engines.engine().phase in ("starting", "loading"))
        await engines.until(lambda: engines.engine().phase in ("backoff", "failed"))
    assert engines.counts() == (0, 0)


async def test_a_crash_loop_ends(make: Make) -> None:
    """After five deaths a pinned model is failed, stays so, and says why; a load forgives it."""
    engines = make(spec(pin=True), load="die")
    for _ in range(4):
        await engines.until_phase("backoff")
        engines.turn_clock(60)
        await engines.until(lambda: engines.engine().phase != "backoff")
    engine = await engines.until_phase("failed")
    assert engine.failure_reason == "CrashLoop"
    with pytest.raises(ModelUnavailable, match="died 5 times"):
        await engines.ask(request())
    assert engines.controller.last_plan.requeue_after is None
    engines.controller.load("m")
    await engines.until(lambda: engines.engine().phase != "failed")


async def test_death_in_a_stream(make: Make) -> None:
    """What was said arrives, then the error; the next request has a new worker."""
    engines = make(spec(), tokens=5, die_after_tokens=2)
    asking = engines.asking(request())
    with pytest.raises(WorkerDied, match="SIGKILL"):
        await asking.task
    assert text_of(asking.events) == "one two"
    assert engines.counts() == (0, 0)
    assert engines.engine().phase == "backoff"
    again = engines.asking(request(request_id="again", max_tokens=1))
    await engines.until(lambda: engines.counts() == (1, 0))
    engines.turn_clock(1)
    assert is_whole(await again.task)


async def test_death_before_the_first_word_is_not_seen(make: Make, tmp_path: Path) -> None:
    """A request whose worker died after Accepted is answered by the next one, accepted once."""
    engines = make(spec(), die_after_tokens=0, once=str(tmp_path / "died"))
    asking = engines.asking(request())
    await engines.until_phase("backoff")
    engines.turn_clock(1)
    events = await asking.task
    assert is_whole(events)
    assert sum(isinstance(event, Accepted) for event in events) == 1


async def test_garbage_ends_the_worker_with_its_reason(make: Make) -> None:
    """A frame that is no message costs the worker, and the failure says it."""
    engines = make(spec(), garbage_after_tokens=1)
    with pytest.raises(WorkerDied, match="its channel broke"):
        await engines.ask(request())
    assert "its channel broke" in engines.engine().failure


async def test_a_worker_that_never_says_hello(make: Make) -> None:
    """It is killed, and the reason is what users see, not the signal alone."""
    engines = make(spec(pin=True), hello_timeout_s=0.1, hello=False)
    engine = await engines.until_phase("backoff")
    assert "did not say Hello within 0.1 s" in engine.failure


async def test_a_load_that_fails_for_good(make: Make) -> None:
    """Bad files fail the waiting request with the worker's own words; nothing is retried."""
    engines = make(spec(), load="fail_permanent")
    with pytest.raises(ModelUnavailable, match="the script says so"):
        await engines.ask(request())
    assert engines.engine().failure_reason == "BadFiles"
    with pytest.raises(ModelUnavailable, match="change its settings or files"):
        await engines.ask(request(request_id="next"))
    assert engines.supervisor.workers == {}
    engines.want(spec(load={"block_tokens": 32}), generation=2)
    await engines.until_phase("absent")


async def test_a_load_that_hangs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its start timeout the worker is ended, whatever waits on it, and tried again."""
    monkeypatch.setattr("omlxd.daemon.fleet.STOP_GRACE_S", 0.05)
    engines = make(spec(), load_delay_s=1000)
    asking = engines.asking(request())
    await engines.until(lambda: engines.counts() == (0, 1))
    engines.turn_clock(601)
    engine = await engines.until_phase("backoff")
    assert engine.failure_reason == "StartTimeout"
    assert engines.counts() == (1, 0)
    engines.turn_clock(1)
    await engines.until(lambda: engines.counts() == (0, 1))
    engines.turn_clock(601)
    with pytest.raises(WorkerDied):
        await asking.task


async def test_a_program_that_cannot_be_started(make: Make) -> None:
    """The model backs off with the system's own words, and the request behind it is told."""
    engines = make(spec(), command=("/no/such/program",))
    asking = engines.asking(request())
    engine = await engines.until_phase("backoff")
    assert "/no/such/program" in engine.failure
    assert engines.counts() == (1, 0)
    await asking.leave()
    engines.want(generation=2)
    await engines.until(lambda: not engines.controller.engines)


async def test_a_request_for_a_worker_that_is_just_gone_keeps_its_place(make: Make) -> None:
    """Between the end of the channel and the exit a request waits, is counted once, may leave."""
    engines = make(spec(), close_channel=True)
    engines.controller.load("m")
    await engines.until_phase("loading")
    worker = engines.fleet.worker_of("m")
    assert worker is not None
    await worker._channel_ended.wait()  # it lives on; its exit comes later
    leaving, staying = (engines.asking(request(request_id=name)) for name in ("a", "b"))
    passes = engines.passes
    await engines.until(lambda: engines.passes > passes)
    assert engines.counts() == (2, 0)
    await leaving.leave()
    assert engines.counts() == (1, 0)
    worker.kill()
    await engines.until_phase("backoff")
    assert engines.counts() == (1, 0)
    assert [ticket.retried for ticket in engines.gateway.open_tickets()] == [False]
    await staying.leave()
    assert engines.counts() == (0, 0)


# ------------------------------------------------------------------ stops


async def test_stop_while_it_is_spawned(make: Make) -> None:
    """An engine that is unloaded before its process exists ends as soon as there is one."""
    engines = make(spec())
    engines.controller.load("m")
    engines.controller.reconcile()
    assert engines.engine().phase == "starting"
    engines.controller.unload("m")
    engines.controller.reconcile()
    assert engines.engine().phase == "stopping"
    await engines.until_phase("absent")
    assert engines.supervisor.workers == {}
    assert engines.engine().deaths == ()


async def test_loaded_that_crosses_the_stop_is_no_load(make: Make) -> None:
    """A worker that finished its load after it was told to end was never loaded."""
    engines = make(spec(), load_delay_s=0.2)
    engines.controller.load("m")
    await engines.until_phase("loading")
    engines.controller.unload("m")
    await engines.until_phase("absent")
    assert engines.reasons() == ["Unloaded"]
    assert engines.measured == []
    assert engines.controller.facts == {}


async def test_a_worker_that_ignores_stop(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is terminated after its grace, and that is no death."""
    monkeypatch.setattr("omlxd.daemon.fleet.STOP_GRACE_S", 0.05)
    engines = make(spec(), ignore_stop=True)
    engines.controller.load("m")
    await engines.until_phase("ready")
    engines.controller.unload("m")
    assert (await engines.until_phase("absent")).deaths == ()


async def test_the_stopped_worker_may_be_dead_already(make: Make) -> None:
    """An order to stop that meets a process which just died ends as any stop."""
    engines = make(spec())
    engines.controller.load("m")
    await engines.until_phase("ready")
    worker = engines.fleet.worker_of("m")
    assert worker is not None
    process = psutil.Process(worker.pid)
    process.kill()
    process.wait(10)  # dead, and not yet reported: the loop has not turned
    engines.controller.unload("m")
    engines.controller.reconcile()
    engines.fleet.stop("m")  # twice is no harm
    await engines.until_phase("absent")


async def test_new_settings_drain_and_replace(make: Make) -> None:
    """What runs finishes on the old worker, what comes meanwhile is served by the new one."""
    engines = make(spec(), tokens=30, token_delay_s=0.01)
    running = engines.asking(request(request_id="running"))
    await running.until(Delta)
    old = engines.pid()
    engines.want(spec(load={"block_tokens": 32}), generation=2)
    await engines.until_phase("draining")
    late = engines.asking(request(request_id="late", max_tokens=1))
    await engines.until(lambda: engines.counts() == (1, 1))
    assert is_whole(await running.task)
    assert is_whole(await late.task)
    assert engines.pid() != old
    assert "Replaced" in engines.reasons()


async def test_a_model_is_loaded_to_the_end_that_drains(make: Make) -> None:
    """A load that requests were handed to goes on while it drains, serves them, is replaced."""
    engines = make(spec(), load_delay_s=0.2)
    asking = engines.asking(request())
    await engines.until(lambda: engines.counts() == (0, 1))
    engines.want(spec(load={"block_tokens": 32}), generation=2)
    await engines.until_phase("draining")
    assert is_whole(await asking.task)
    await engines.until_phase("ready")
    assert engines.controller.engine("m").load == engines.controller.desired.engines["m"].load


async def test_giving_up_ends_every_request(make: Make) -> None:
    """At the end of the grace what streams and what waits is told so, and the counts are zero."""
    engines = make(spec("a"), spec("b"), tokens=10_000, token_delay_s=0.01)
    streaming = engines.asking(request("a", "streaming"))
    await streaming.until(Delta)
    waiting = engines.asking(request("b", "waiting"))
    await asyncio.sleep(0)
    assert engines.counts("b") == (1, 0)
    engines.controller.give_up(ModelUnavailable("the grace is over"))
    for asking in (streaming, waiting):
        with pytest.raises(ModelUnavailable, match="grace is over"):
            await asking.task
    assert (engines.counts("a"), engines.counts("b")) == ((0, 0), (0, 0))


async def test_shutdown_refuses_and_stops(make: Make) -> None:
    """Asked to stop, it lets what streams finish, refuses the rest and ends every worker."""
    engines = make(
        spec("a"), spec("b", pin=True), tokens=20, token_delay_s=0.01, wanted={"spare_workers": 1}
    )
    streaming = engines.asking(request("a", "streaming"))
    await streaming.until(Delta)
    await engines.until_phase("ready", "b")
    engines.controller.stop()
    with pytest.raises(ModelUnavailable, match="shutting down"):
        await engines.ask(request("a", "late"))
    assert is_whole(await streaming.task)
    await engines.until(lambda: {engines.engine(m).phase for m in ("a", "b")} == {"absent"})
    assert {engines.engine(m).deaths for m in ("a", "b")} == {()}
    assert engines.fleet.spares == 0
