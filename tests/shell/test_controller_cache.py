"""What engines are granted of the tiered cache, and what comes of their reports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from omlxd.errors import WorkerDied
from omlxd.ipc.messages import CacheReport, PrefixMatch
from omlxd.reconcile.pressure import PATIENCE_S
from tests.support.cold import namespace
from tests.support.engines import MIB, Engines, request, spec, told

GIB = 2**30
WANTED = {"memory_limit_bytes": 8 * GIB, "hot_bytes": GIB}
Make = Callable[..., Engines]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Engines] = []

    def build(*args: Any, **script: Any) -> Engines:
        made.append(Engines(tmp_path, *args, **({"wanted": WANTED} | script)))
        return made[-1]

    yield build
    for engines in made:
        await engines.close()


def report(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {"namespace": namespace(number), **fields}


async def test_hot_bytes_follow_who_is_there(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it may keep blocks in all of cache.hot; the budget is divided when another comes."""
    engines = make(spec("a", pin=True), spec("b"), print_settings=True)
    await engines.until_phase("ready", "a")
    engines.controller.load("b")
    await engines.until_phase("ready", "b")
    engines.controller.unload("b")
    await engines.until_phase("absent", "b")
    heard = await told(engines, monkeypatch)
    assert [one["hot_bytes"] for one in heard["a"]] == [GIB, GIB // 2, GIB]


async def test_above_the_memory_limit_blocks_make_room(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The idle engine is told at once, and again when there is room; it is not unloaded."""
    engines = make(spec("m"), cache=report(hot_bytes=GIB), print_settings=True)
    engines.controller.load("m")
    await engines.until_phase("ready", "m")
    await engines.until(lambda: engines.controller.cache.hot_bytes == GIB)
    (pid,) = engines.controller.fleet.pids()
    for size, hot in ((7 * GIB + GIB // 4, 3 * GIB // 4), (5 * GIB, GIB)):
        engines.controller.footprints_measured(GIB, {pid: size})
        await engines.until(lambda hot=hot: engines.controller.grants.of("m").hot_bytes == hot)
        assert engines.pid() == pid
    heard = await told(engines, monkeypatch)
    assert [one["hot_bytes"] for one in heard["m"]] == [GIB, 3 * GIB // 4, GIB]
    assert len({one["memory_share_bytes"] - one["hot_bytes"] for one in heard["m"]}) == 1


async def test_blocks_that_stay_above_the_limit_cost_the_engine(make: Make) -> None:
    """A worker that never lets go of its blocks is unloaded in the end, if it is idle."""
    engines = make(spec("m"), cache=report(hot_bytes=GIB))
    engines.controller.load("m")
    await engines.until_phase("ready", "m")
    await engines.until(lambda: engines.controller.cache.hot_bytes == GIB)
    (pid,) = engines.controller.fleet.pids()
    for _ in range(2):
        assert engines.engine("m").phase == "ready"
        engines.controller.footprints_measured(GIB, {pid: 7 * GIB + GIB // 4})
        engines.turn_clock(PATIENCE_S)
    await engines.until_phase("absent", "m")
    assert engines.reasons() == ["Loaded", "EvictedForMemory"]


async def test_what_was_measured_before_blocks_went_evicts_nobody(make: Make) -> None:
    """Blocks that are gone are still in the last measurement of memory: the next one counts."""
    engines = make(spec("m"), cache=report(hot_bytes=GIB // 4))
    engines.controller.load("m")
    await engines.until_phase("ready", "m")
    await engines.until(lambda: engines.controller.cache.hot_bytes == GIB // 4)
    (pid,) = engines.controller.fleet.pids()
    engines.controller.footprints_measured(GIB, {pid: 7 * GIB + GIB // 4})
    engines.controller.cache.heard("m", CacheReport(**report()))
    engines.controller.reconcile()
    assert engines.controller.cache.hot_bytes == 0
    assert engines.engine("m").phase == "ready"


async def test_what_it_may_take_is_in_its_first_settings(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine begins with its part, also where another one came before its process did."""
    engines = make(
        spec("a", pin=True, load={"cold_dir": "/cache"}), spec("b", pin=True), print_settings=True
    )
    engines.controller.cold_dir = "/cache"
    for model in "ab":
        await engines.until_phase("ready", model)
    heard = await told(engines, monkeypatch)
    for model in "ab":
        assert [one["hot_bytes"] for one in heard[model]] == [GIB // 2]
    assert [heard[model][0]["cold"] for model in "ab"] == [True, False]


async def test_a_smaller_budget_is_told_at_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cache.hot` is live: the running engine is told, and nothing is reloaded."""
    engines = make(spec("m", pin=True), print_settings=True)
    await engines.until_phase("ready")
    pid = engines.pid()
    engines.want(spec("m", pin=True), generation=2, **(WANTED | {"hot_bytes": MIB}))
    await engines.until(lambda: engines.controller.observed_generation == 2)
    assert engines.pid() == pid
    heard = await told(engines, monkeypatch)
    assert heard["m"][-1]["hot_bytes"] == MIB


async def test_who_cannot_reuse_blocks_leaves_them_to_others(make: Make) -> None:
    """An engine that turned out not to reuse prefixes gets no RAM for blocks."""
    engines = make(spec("a", pin=True), spec("b", pin=True), models={"b": {"prefix_reuse": False}})
    for model in "ab":
        await engines.until_phase("ready", model)
    grants = engines.controller.grants
    await engines.until(lambda: grants.of("a").hot_bytes == GIB)
    assert grants.of("b").hot_bytes == 0


async def test_busy_engines_get_more(make: Make) -> None:
    """A minute later the division follows the prompt tokens that were reported."""
    busy = report(tokens={"ram": 100, "ssd": 0, "computed": 900})
    idle = report(2)
    engines = make(
        spec("a", pin=True),
        spec("b", pin=True),
        models={"a": {"cache": busy}, "b": {"cache": idle}},
    )
    for model in "ab":
        await engines.until_phase("ready", model)
    await engines.until(lambda: len(engines.controller.cache.reports) == 2)
    engines.turn_clock(61)
    grants = engines.controller.grants
    await engines.until(lambda: grants.of("a").hot_bytes == GIB // 8 + GIB * 3 // 4)
    assert grants.of("b").hot_bytes == GIB // 8


async def test_the_cold_tier_comes_and_goes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are told when the folder they were started with may be used, and when not."""
    engines = make(spec(pin=True, load={"cold_dir": "/cache"}), print_settings=True)
    await engines.until_phase("ready")
    for cold_dir in ("/cache", ""):
        engines.controller.cold_dir = cold_dir
        engines.controller.wake()
        await engines.until(
            lambda cold_dir=cold_dir: engines.controller.grants.of("m").cold == bool(cold_dir)
        )
    heard = await told(engines, monkeypatch)
    assert [one["cold"] for one in heard["m"]] == [False, True, False]


async def test_reports_are_kept_while_the_worker_lives(make: Make) -> None:
    """Sums are over the engines that are loaded; what was written stays counted."""
    written = []
    engines = make(spec(), cache=report(hot_bytes=7, written_bytes=5))
    book = engines.controller.cache
    book.on_written = lambda: written.append(book.written_bytes)
    await engines.ask(request())
    await engines.until(lambda: book.reports)
    assert (book.hot_bytes, book.namespaces) == (7, {namespace(1): "m"})
    engines.controller.unload("m")
    await engines.until_phase("absent")
    assert (book.hot_bytes, book.reports, book.written_bytes) == (0, {}, 5)
    await engines.ask(request(request_id="r2"))
    await engines.until(lambda: book.written_bytes == 10)
    assert written == [5, 10]


async def test_a_degraded_engine_is_told_once(make: Make) -> None:
    """Repeated reports of the same trouble are one event."""
    engines = make(spec(), cache=report(degraded="disk full"))
    for number in range(3):
        await engines.ask(request(request_id=f"r{number}"))
    await engines.until(lambda: engines.controller.cache.degraded == {"m": "disk full"})
    assert engines.reasons().count("ColdTierLost") == 1


async def test_evictions_are_logged(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """What a worker dropped is one `cache_evict` line."""
    gone = {"tier": "hot", "blocks": 3, "bytes": 4096, "reason": "budget"}
    engines = make(spec(), evicted=gone, cache=report())
    await engines.ask(request())
    await engines.until(lambda: engines.controller.cache.reports)
    line = next(line for line in capsys.readouterr().err.splitlines() if "cache_evict" in line)
    for field in ('"model": "m"', '"tier": "hot"', '"blocks": 3', '"bytes": 4096', '"budget"'):
        assert field in line


async def test_a_command_is_answered(make: Make) -> None:
    """What a worker did comes back to who asked."""
    engines = make(spec(pin=True))
    await engines.until_phase("ready")
    worker = engines.fleet.worker_of("m")
    assert worker is not None
    done = await engines.controller.cache.ask("m", worker, "clear")
    assert (done.entries, done.bytes) == (3, 4096)


async def test_a_command_ends_with_its_worker(make: Make) -> None:
    """Whoever waits for an answer of a worker that died is told so."""
    engines = make(spec(pin=True), cache_command="die")
    await engines.until_phase("ready")
    worker = engines.fleet.worker_of("m")
    assert worker is not None
    with pytest.raises(WorkerDied, match="the process of m ended"):
        await engines.controller.cache.ask("m", worker, "clear")


async def test_the_match_of_a_request_is_remembered(make: Make) -> None:
    """What the worker says of a prompt can be asked for later, by the request's id."""
    engines = make(spec(), match={"ram": 2, "donor": "r0", "why_not_more": "exact prompt"})
    await engines.ask(request())
    _, past = engines.gateway.recent.find("r1")
    assert past.match == PrefixMatch(ram=2, donor="r0", why_not_more="exact prompt")
