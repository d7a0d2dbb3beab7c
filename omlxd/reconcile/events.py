"""Facts folded into one engine's observed state. The controller calls these and nothing else.

Rules the caller keeps:
- A request is `waiting` first, then handed over (to a ready engine too), then ended; or it leaves.
- `on_exited` ends every request handed to that worker, `on_refused` every waiting one: the counts
  fall to zero there, and the caller reports none of those requests again.
- Every started worker ends with exactly one `on_exited`, whoever asked for the end.
- Facts of a worker that is already stopping change nothing; they crossed the order on the way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omlxd.ipc.messages import LiveSettings
from omlxd.reconcile import backoff
from omlxd.reconcile.phases import WITH_WORKER, broken_invariants, move
from omlxd.reconcile.state import EngineObserved, Phase, StartEngine

DEATHS_BY_LEAVING = {
    "start_timeout": "StartTimeout",
    "load_failed": "LoadFailed",
    "bad_files": "BadFiles",
}
"""Stops that count as a death, and the word conditions use for them."""


def _with(engine: EngineObserved, **changes: Any) -> EngineObserved:
    changed = replace(engine, **changes)
    broken = broken_invariants(changed)
    assert not broken, broken
    return changed


# ------------------------------------------------------------------ the worker's life


def on_started(engine: EngineObserved, now: float, *, start: StartEngine) -> EngineObserved:
    """A worker was asked for. From here on its estimate is held of the memory limit."""
    return _with(
        move(engine, "starting", now),
        load=start.load,
        live=start.live,
        reserved_bytes=start.reserved_bytes,
        started_at=now,
        restarts=engine.restarts + bool(engine.failure),
    )


def on_loading(engine: EngineObserved, now: float) -> EngineObserved:
    """The worker lives and was told what to load."""
    if engine.phase == "stopping":
        return engine
    return _with(move(engine, "loading", now))


def on_loaded(engine: EngineObserved, now: float, *, footprint_bytes: int) -> EngineObserved:
    """The model answers; its measured footprint replaces the estimate. The TTL starts."""
    if engine.phase == "stopping":
        return engine
    loaded = engine if engine.phase == "draining" else move(engine, "ready", now)
    return _with(
        loaded,
        loaded_at=now,
        last_used=now,
        footprint_bytes=footprint_bytes,
        reserved_bytes=0,
        load_requested=False,
        preloaded=True,
        failure="",
        failure_reason="",
        failed_load=None,
    )


def on_load_failed(
    engine: EngineObserved, now: float, *, message: str, permanent: bool
) -> EngineObserved:
    """It cannot load and ends by itself; it counts as dead, and frees its memory, at `on_exited`.

    `permanent` = trying again cannot help until its settings or files change.
    """
    if engine.phase == "stopping":
        return engine
    leaving = "bad_files" if permanent else "load_failed"
    return _with(move(engine, "stopping", now), leaving=leaving, failure=message)


def on_draining(engine: EngineObserved, now: float, *, reason: str) -> EngineObserved:
    """No new requests are handed to it."""
    return _with(move(engine, "draining", now), leaving=reason)


def on_resumed(engine: EngineObserved, now: float) -> EngineObserved:
    """It takes requests again, as if it had never drained."""
    return _with(move(engine, "ready", now), leaving="")


def on_stopping(engine: EngineObserved, now: float, *, reason: str) -> EngineObserved:
    """Its worker was told to end."""
    failure = engine.failure
    if reason == "start_timeout":
        failure = f"was not loaded {now - engine.started_at:.0f} s after its start"
    return _with(move(engine, "stopping", now), leaving=reason, failure=failure)


def on_exited(engine: EngineObserved, now: float, *, reason: str) -> EngineObserved:
    """The worker is gone. Asked for, the engine is absent; unasked, it died of `reason`."""
    if engine.phase != "stopping":
        return _dead(engine, now, failure=reason, word="WorkerDied")
    if engine.leaving in DEATHS_BY_LEAVING:
        word = DEATHS_BY_LEAVING[engine.leaving]
        return _dead(engine, now, failure=engine.failure, word=word)
    # New settings deserve the preload and the load that the old ones had.
    is_replaced = engine.leaving == "settings"
    owed = engine.load_requested or (is_replaced and engine.loaded_at is not None)
    return _with(
        _without_worker(move(engine, "absent", now)),
        preloaded=engine.preloaded and not is_replaced,
        load_requested=owed,
    )


def _dead(engine: EngineObserved, now: float, *, failure: str, word: str) -> EngineObserved:
    deaths = backoff.record_death(engine.deaths, now)
    if backoff.is_crash_loop(deaths, now):
        word = "CrashLoop"
        failure = f"died {backoff.MAX_DEATHS} times in ten minutes, the last time: {failure}"
    phase: Phase = "failed" if word in ("CrashLoop", "BadFiles") else "backoff"
    return _with(
        _without_worker(move(engine, phase, now)),
        deaths=deaths,
        retry_at=now + backoff.retry_delay_s(deaths) if phase == "backoff" else None,
        failure=failure,
        failure_reason=word,
        failed_load=engine.load,
        load_requested=engine.load_requested and phase == "backoff",
    )


def _without_worker(engine: EngineObserved) -> EngineObserved:
    return replace(
        engine,
        load=None,
        live=None,
        footprint_bytes=0,
        reserved_bytes=0,
        in_flight=0,
        loaded_at=None,
        leaving="",
        unload_requested=False,
    )


def on_retry(engine: EngineObserved, now: float) -> EngineObserved:
    """Back-off is over (deaths still count), or what failed has changed (they do not)."""
    is_due = engine.retry_at is not None and engine.retry_at <= now
    deaths = engine.deaths if is_due else ()
    return _with(move(engine, "absent", now), retry_at=None, deaths=deaths)


# ------------------------------------------------------------------ figures and settings


def on_footprint(engine: EngineObserved, *, footprint_bytes: int) -> EngineObserved:
    """A measurement. One of a worker that ends, or has ended, says nothing of its model."""
    if engine.phase not in WITH_WORKER or engine.phase == "stopping" or footprint_bytes == 0:
        return engine
    return _with(engine, footprint_bytes=footprint_bytes)


def on_configured(engine: EngineObserved, *, live: LiveSettings) -> EngineObserved:
    """Live settings were sent to its worker."""
    assert engine.phase in WITH_WORKER, engine.phase
    return _with(engine, live=live)


# ------------------------------------------------------------------ requests


def on_request_waiting(engine: EngineObserved, now: float) -> EngineObserved:
    """A request wants this engine."""
    since = now if engine.waiting_since is None else engine.waiting_since
    return _with(engine, waiting=engine.waiting + 1, waiting_since=since)


def on_request_handed(engine: EngineObserved) -> EngineObserved:
    """A waiting request was given to the worker."""
    assert engine.phase in ("loading", "ready"), engine.phase
    return _with(_one_waits_less(engine), in_flight=engine.in_flight + 1)


def on_waiter_left(engine: EngineObserved, now: float) -> EngineObserved:
    """A waiting request gave up (client gone, deadline)."""
    return _with(_one_waits_less(engine), last_used=now)


def on_request_ended(engine: EngineObserved, now: float) -> EngineObserved:
    """A handed request had its terminal event, or was cancelled. The TTL starts anew."""
    return _with(engine, in_flight=engine.in_flight - 1, last_used=now)


def on_refused(engine: EngineObserved) -> EngineObserved:
    """Everything that waited for it was failed, `omlxctl load` included."""
    return _with(engine, waiting=0, waiting_since=None, load_requested=False)


def _one_waits_less(engine: EngineObserved) -> EngineObserved:
    left = engine.waiting - 1
    return replace(engine, waiting=left, waiting_since=engine.waiting_since if left > 0 else None)


# ------------------------------------------------------------------ what the user asks for


def on_load_requested(engine: EngineObserved, now: float) -> EngineObserved:
    """`omlxctl load`: counts as a request, and forgives what failed."""
    if engine.phase in ("backoff", "failed"):
        engine = replace(move(engine, "absent", now), retry_at=None, deaths=())
    if engine.phase == "ready":
        return _with(engine, last_used=now)
    return _with(engine, load_requested=True)


def on_unload_requested(engine: EngineObserved) -> EngineObserved:
    """`omlxctl unload`: ends the present use; whoever asks for the model later loads it again."""
    leaves = engine.phase in ("starting", "loading", "ready")
    return _with(
        engine,
        unload_requested=leaves,
        load_requested=False,
        preloaded=True,
        # It would be loaded again.
        leaving="unload" if engine.leaving == "settings" else engine.leaving,
    )


def on_preload_asked(engine: EngineObserved) -> EngineObserved:
    """The key `preload` turned true: one load is owed, unless it is loaded already."""
    return _with(engine, preloaded=engine.phase == "ready")
