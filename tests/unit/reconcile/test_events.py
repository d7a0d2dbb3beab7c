"""Facts folded into the observed state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omlxd.reconcile import events
from omlxd.reconcile.phases import InvalidTransition
from omlxd.reconcile.state import EngineObserved, StartEngine
from tests.unit.reconcile.build import LIVE, NOW, OTHER_LIVE, engine, load_of

START = StartEngine("A", load_of("A"), LIVE, 30, "request")


def _loaded() -> EngineObserved:
    absent = EngineObserved(load_requested=True, waiting=1, waiting_since=0.0)
    starting = events.on_started(absent, 1.0, start=START)
    return events.on_loaded(events.on_loading(starting, 2.0), 3.0, footprint_bytes=20)


def test_a_start_holds_its_estimate_until_measured() -> None:
    """The reserved bytes count from the start on and give way to the footprint once loaded."""
    starting = events.on_started(EngineObserved(), 1.0, start=START)
    assert (starting.phase, starting.held_bytes) == ("starting", 30)
    growing = events.on_footprint(events.on_loading(starting, 2.0), footprint_bytes=40)
    assert growing.held_bytes == 40
    assert events.on_loaded(growing, 3.0, footprint_bytes=20).held_bytes == 20


def test_loaded_fulfils_load_and_preload_and_starts_the_ttl() -> None:
    """A load answers `omlxctl load` and the preload, and counts as the last use."""
    loaded = _loaded()
    assert (loaded.phase, loaded.load_requested, loaded.preloaded) == ("ready", False, True)
    assert (loaded.last_used, loaded.loaded_at, loaded.started_at) == (3.0, 3.0, 1.0)


def test_a_request_is_waiting_then_handed_then_ended() -> None:
    """Counts follow one request, the wait's begin is kept while anyone waits, its end is a use."""
    two = events.on_request_waiting(_loaded(), 4.0)
    assert (two.waiting, two.waiting_since) == (2, 0.0)
    handed = events.on_request_handed(events.on_request_handed(two))
    assert (handed.waiting, handed.waiting_since, handed.in_flight) == (0, None, 2)
    ended = events.on_request_ended(handed, 9.0)
    assert (ended.in_flight, ended.last_used, ended.is_busy) == (1, 9.0, True)


def test_a_waiter_that_leaves_counts_as_a_use() -> None:
    """A client that gave up leaves no trace but the time of its leaving."""
    left = events.on_waiter_left(_loaded(), 8.0)
    assert (left.waiting, left.waiting_since, left.last_used) == (0, None, 8.0)


@pytest.mark.parametrize("phase", ["absent", "starting", "draining", "stopping", "backoff"])
def test_only_a_loading_or_ready_engine_is_handed_requests(phase: str) -> None:
    """Handing a request to any other engine is a bug and is caught at once."""
    with pytest.raises(AssertionError):
        events.on_request_handed(engine(phase, waiting=1))


@pytest.mark.parametrize(("phase", "size"), [("stopping", 3), ("ready", 0), ("absent", 3)])
def test_a_worker_that_ends_keeps_its_last_footprint(phase: str, size: int) -> None:
    """What a process holds on its way out, nothing at the end, is no measure of its model."""
    before = engine(phase)
    assert events.on_footprint(before, footprint_bytes=size) == before


def test_more_ends_than_requests_are_a_bug() -> None:
    """A request cannot end twice."""
    with pytest.raises(AssertionError, match="counts are never negative"):
        events.on_request_ended(_loaded(), 4.0)


def test_an_asked_exit_leaves_nothing_but_history() -> None:
    """After a stop the engine is absent, holds nothing, and may be wanted again."""
    stopping = events.on_stopping(engine("ready", waiting=1, preloaded=True), NOW, reason="ttl")
    gone = events.on_exited(stopping, NOW + 1, reason="exit code 0")
    assert (gone.phase, gone.held_bytes, gone.load, gone.leaving) == ("absent", 0, None, "")
    assert (gone.waiting, gone.preloaded, gone.deaths) == (1, True, ())


@pytest.mark.parametrize(
    ("was", "reason", "owed"),
    [
        ("ready", "settings", True),
        ("loading", "settings", False),
        ("ready", "ttl", False),
        ("ready", "evicted", False),
        ("ready", "removed", False),
        ("draining", "settings", True),
    ],
)
def test_what_was_loaded_is_replaced_when_its_settings_change(
    was: str, reason: str, owed: bool
) -> None:
    """A loaded engine that ends for new settings is owed a load with them; nothing else is."""
    stopping = events.on_stopping(engine(was), NOW, reason=reason)
    gone = events.on_exited(stopping, NOW, reason="exit code 0")
    assert (gone.phase, gone.load_requested) == ("absent", owed)


@pytest.mark.parametrize("phase", ["draining", "stopping"])
def test_an_unload_takes_back_that_it_is_replaced(phase: str) -> None:
    """Asked to unload while it leaves for new settings, an engine stays away."""
    unloaded = events.on_unload_requested(engine(phase, leaving="settings"))
    assert unloaded.leaving == "unload"
    if phase == "draining":
        unloaded = events.on_stopping(unloaded, NOW, reason=unloaded.leaving)
    assert not events.on_exited(unloaded, NOW, reason="exit code 0").load_requested


def test_a_drain_that_is_taken_back_leaves_no_trace() -> None:
    """The engine is ready as before, with the requests that run on it."""
    before = engine("ready", in_flight=2)
    draining = events.on_draining(before, NOW, reason="settings")
    assert events.on_resumed(draining, NOW + 1) == replace(before, phase_since=NOW + 1)


def test_an_engine_replaced_for_its_settings_is_owed_its_preload_again() -> None:
    """`preload` holds across a change of settings."""
    stopping = events.on_stopping(engine("ready", preloaded=True), NOW, reason="settings")
    assert not events.on_exited(stopping, NOW, reason="exit code 0").preloaded


@pytest.mark.parametrize("phase", ["starting", "loading", "ready", "draining"])
def test_an_unasked_exit_is_a_death(phase: str) -> None:
    """A worker that dies in any phase leads to backoff, with its settings and reason kept."""
    dead = events.on_exited(engine(phase, load_requested=True), NOW, reason="killed by SIGKILL")
    assert (dead.phase, dead.failure_reason, dead.failure) == (
        "backoff",
        "WorkerDied",
        "killed by SIGKILL",
    )
    assert (dead.retry_at, dead.deaths, dead.failed_load) == (NOW + 1, (NOW,), load_of("A"))
    assert dead.load_requested


def test_an_exit_without_a_worker_is_a_bug() -> None:
    """A second exit of the same worker raises."""
    with pytest.raises(InvalidTransition):
        events.on_exited(engine("backoff"), NOW, reason="again")


@pytest.mark.parametrize(
    ("permanent", "phase", "word"), [(False, "backoff", "LoadFailed"), (True, "failed", "BadFiles")]
)
def test_a_failed_load_frees_its_memory_at_the_exit(permanent: bool, phase: str, word: str) -> None:
    """It stops first, still holding memory; at the exit it is in backoff, or failed for good."""
    failed = events.on_load_failed(engine("loading"), NOW, message="no", permanent=permanent)
    assert (failed.phase, failed.held_bytes) == ("stopping", 10)
    gone = events.on_exited(failed, NOW, reason="exit code 1")
    assert (gone.phase, gone.failure_reason, gone.failure) == (phase, word, "no")


def test_a_start_that_took_too_long_is_a_death() -> None:
    """A stop for start_timeout ends in backoff and says how long it took."""
    slow = events.on_stopping(engine("loading", started_at=0.0), 600.0, reason="start_timeout")
    dead = events.on_exited(slow, 601.0, reason="killed by SIGKILL")
    assert (dead.phase, dead.failure_reason) == ("backoff", "StartTimeout")
    assert dead.failure == "was not loaded 600 s after its start"


def test_five_deaths_make_a_crash_loop() -> None:
    """The fifth death in ten minutes is failed, not backoff, and gives up an `omlxctl load`."""
    state = EngineObserved(load_requested=True)
    for second in range(5):
        state = events.on_started(state, second, start=START)
        state = events.on_exited(state, second, reason="boom")
        if second < 4:
            state = events.on_retry(state, state.retry_at or 0.0)
    assert (state.phase, state.failure_reason, state.retry_at) == ("failed", "CrashLoop", None)
    assert state.failure == "died 5 times in ten minutes, the last time: boom"
    assert (state.restarts, state.load_requested) == (4, False)


def test_a_due_retry_remembers_deaths_and_a_change_forgives_them() -> None:
    """Time alone does not clear the run of deaths; what changed does."""
    waiting = engine("backoff")
    assert events.on_retry(waiting, NOW + 1).deaths == waiting.deaths
    assert events.on_retry(waiting, NOW).deaths == ()
    assert events.on_retry(engine("failed"), NOW).deaths == ()


def test_facts_that_cross_a_stop_change_nothing() -> None:
    """A worker that was told to stop may still report; its engine stays as it is."""
    stopping = engine("stopping")
    assert events.on_loading(stopping, NOW) is stopping
    assert events.on_loaded(stopping, NOW, footprint_bytes=1) is stopping
    assert events.on_load_failed(stopping, NOW, message="no", permanent=True) is stopping


def test_a_draining_load_that_finishes_stays_draining() -> None:
    """Requests handed to it while it loaded are served, but nobody new comes in."""
    draining = events.on_draining(engine("loading", in_flight=1), NOW, reason="removed")
    loaded = events.on_loaded(draining, NOW + 1, footprint_bytes=20)
    assert (loaded.phase, loaded.loaded_at, loaded.held_bytes) == ("draining", NOW + 1, 20)


def test_a_late_measurement_says_nothing() -> None:
    """A footprint that arrives after the worker's end is dropped."""
    assert events.on_footprint(engine("failed"), footprint_bytes=9).footprint_bytes == 0


def test_configured_keeps_what_was_sent() -> None:
    """Live settings count as in force when they were handed over."""
    assert events.on_configured(engine("ready"), live=OTHER_LIVE).live == OTHER_LIVE


def test_load_forgives_what_failed() -> None:
    """`omlxctl load` tries a failed engine again with a clean record."""
    for phase in ("backoff", "failed"):
        again = events.on_load_requested(engine(phase), NOW)
        assert (again.phase, again.load_requested, again.deaths) == ("absent", True, ())


def test_load_of_a_ready_engine_is_a_use() -> None:
    """Nothing is left to do but to start the TTL anew."""
    again = events.on_load_requested(engine("ready"), NOW)
    assert (again.load_requested, again.last_used) == (False, NOW)


def test_unload_ends_the_present_use() -> None:
    """It withdraws a load and a preload; an engine without a worker has nothing to unload."""
    leaving = events.on_unload_requested(engine("loading", load_requested=True))
    assert (leaving.unload_requested, leaving.load_requested, leaving.preloaded) == (
        True,
        False,
        True,
    )
    assert not events.on_unload_requested(engine("backoff")).unload_requested


def test_preload_is_owed_once_the_key_turns_true() -> None:
    """A loaded engine owes nothing, an absent one owes one load even if it was loaded before."""
    assert events.on_preload_asked(engine("ready")).preloaded
    assert not events.on_preload_asked(engine("absent", preloaded=True)).preloaded


def test_refused_clears_everyone_who_waits() -> None:
    """No request and no `omlxctl load` is left."""
    refused = events.on_refused(engine("failed", waiting=3))
    assert (refused.waiting, refused.waiting_since, refused.load_requested) == (0, None, False)
