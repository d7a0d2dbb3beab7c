"""What the controller tells the workers that stay, and the spares beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines import MIB, Engines, request, spec, told

Make = Callable[..., Engines]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Engines] = []

    def build(*args: Any, **script: Any) -> Engines:
        made.append(Engines(tmp_path, *args, **script))
        return made[-1]

    yield build
    for engines in made:
        await engines.close()


def shares(heard: list[Any]) -> list[int]:
    """What a worker was told it may take; 0 = not decided yet."""
    return [one["memory_share_bytes"] for one in heard if one["memory_share_bytes"]]


async def test_live_settings_reach_the_running_engine(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live change is handed to the same process, which goes on."""
    engines = make(spec(pin=True), print_settings=True)
    await engines.until_phase("ready")
    pid = engines.pid()
    engines.want(spec(pin=True, live={"max_output_tokens": 7}), generation=2)
    await engines.until(lambda: engines.controller.observed_generation == 2)
    assert engines.pid() == pid
    heard = await told(engines, monkeypatch)
    assert heard["m"][0]["max_output_tokens"] is None
    assert heard["m"][-1]["max_output_tokens"] == 7


async def test_settings_changed_during_a_load_reach_it_afterwards(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that comes while the model loads is in force once it is ready."""
    engines = make(spec(pin=True), print_settings=True, load_delay_s=0.2)
    await engines.until_phase("loading")
    engines.want(spec(pin=True, live={"max_output_tokens": 7}), generation=2)
    await engines.until_phase("ready")
    heard = await told(engines, monkeypatch)
    assert heard["m"][-1]["max_output_tokens"] == 7


async def test_a_drain_is_taken_back_with_its_settings(make: Make) -> None:
    """The change is undone behind a stream: the same worker goes on and takes who waited."""
    engines = make(spec(), tokens=200, token_delay_s=0.01)
    streaming = engines.asking(request())
    await engines.until_phase("ready")
    pid = engines.pid()
    engines.want(spec(load={"block_tokens": 128}), generation=2)
    await engines.until_phase("draining")
    second = engines.asking(request(request_id="second"))
    await engines.until(lambda: engines.controller.engine("m").waiting == 1)
    engines.want(spec(), generation=3)
    await engines.until(lambda: engines.controller.engine("m").in_flight == 2)
    assert (engines.controller.engine("m").phase, engines.pid()) == ("ready", pid)
    await streaming.leave()
    await second.leave()


async def test_an_idle_engine_is_replaced(make: Make) -> None:
    """Nobody asks for it and nothing pins it: it is loaded with the new settings all the same."""
    engines = make(spec())
    engines.controller.load("m")
    await engines.until_phase("ready")
    pid = engines.pid()
    changed = spec(load={"block_tokens": 128})
    engines.want(changed, generation=2)
    await engines.until_phase("stopping")
    await engines.until_phase("ready")
    assert engines.pid() != pid
    assert engines.controller.engine("m").load == changed.load


async def test_shares_follow_who_is_there(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine alone may take all; the limit is divided when another comes, and back."""
    engines = make(
        spec("a", pin=True), spec("b"), print_settings=True, wanted={"memory_limit_bytes": 2**30}
    )
    engines.controller.base_bytes = 0
    await engines.until_phase("ready", "a")
    engines.controller.load("b")
    await engines.until_phase("ready", "b")
    engines.controller.unload("b")
    await engines.until_phase("absent", "b")
    heard = await told(engines, monkeypatch)
    half = MIB + (2**30 - 2 * MIB) // 2
    assert shares(heard["a"]) == [2**30, half, 2**30]


async def test_a_removed_model_keeps_its_share_until_it_is_gone(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What still streams on it may take what it was promised; others grow when it has ended."""
    engines = make(
        spec("a", pin=True),
        spec("b"),
        print_settings=True,
        wanted={"memory_limit_bytes": 2**30},
        tokens=30,
        token_delay_s=0.01,
    )
    await engines.until_phase("ready", "a")
    streaming = engines.asking(request("b"))
    await engines.until_phase("ready", "b")
    engines.want(spec("a", pin=True), memory_limit_bytes=2**30, generation=2)
    await engines.until_phase("draining", "b")
    half = MIB + (2**30 - 2 * MIB) // 2
    await engines.until(lambda: engines.controller.observed_generation == 2)
    granted = [engines.controller.grants.of(model).memory_share_bytes for model in "ab"]
    assert granted == [half, half]
    await streaming.task
    await engines.until(lambda: "b" not in engines.controller.engines)
    heard = await told(engines, monkeypatch)
    assert shares(heard["a"]) == [2**30, half, 2**30]


async def test_a_spare_is_taken_and_made_anew(make: Make) -> None:
    """The warm process loads the model, and the next spare comes when that is done."""
    engines = make(spec(), wanted={"spare_workers": 1})
    await engines.until(lambda: engines.fleet.spares == 1)
    await engines.fleet_at_rest()
    (spare,) = engines.fleet.pids()
    engines.controller.load("m")
    await engines.until_phase("ready")
    assert engines.pid() == spare
    await engines.until(lambda: engines.fleet.spares == 1)


async def test_a_broken_install_does_not_spin(make: Make) -> None:
    """Spares that die at once are not made again and again, and shutting down still works."""
    engines = make(spec(), wanted={"spare_workers": 2}, protocol=99)
    await engines.until(lambda: engines.fleet.spares == 2)
    await engines.fleet_at_rest()
    while engines.supervisor.workers:
        await engines.supervisor_at_rest()
    engines.controller.wake()
    passes = engines.passes
    await engines.until(lambda: engines.passes > passes)
    assert engines.supervisor._spawned == 2
    engines.controller.stop()
    await engines.until(lambda: engines.fleet.spares == 0)
    assert not engines.running.done()


async def test_a_queue_that_grows_in_the_worker_is_seen(make: Make) -> None:
    """Who runs and who waits inside a worker is published when the worker tells it."""
    engines = make(spec(), tokens=1_000_000, token_delay_s=0.001)
    asking = engines.asking(request())
    stats = await engines.until(lambda: engines.controller.stats.get("m"))
    assert stats is not None
    assert (stats.running, stats.waiting) == (1, 0)
    await asking.leave()
    await engines.until(lambda: engines.controller.stats["m"].running == 0)
