"""plan(desired, observed, now) → actions: the whole of what the daemon does about its engines.

Every pass reads everything and asks only what is missing now. The order of rules: refuse what is
hopeless, forgive what changed, hand out live settings, let go what should go, then give memory to
who wants it. Actions of one rule are in the order of model names.
"""

from __future__ import annotations

from collections.abc import Iterator

from omlxd.reconcile.admission import Want, admit
from omlxd.reconcile.phases import WITH_WORKER
from omlxd.reconcile.state import (
    Action,
    ConfigureEngine,
    Desired,
    DrainEngine,
    EngineObserved,
    EngineSpec,
    KeepSpares,
    ModelId,
    Observed,
    Plan,
    RefuseWaiting,
    ResumeEngine,
    RetryEngine,
    StartEngine,
    StopEngine,
)

ABSENT = EngineObserved()


def plan(desired: Desired, observed: Observed, now: float) -> Plan:
    """What to do now, when to look again regardless, and why wanted engines are not started."""
    departures = list(_departures(desired, observed, now))
    going = frozenset(action.model for action in departures if isinstance(action, StopEngine))
    wants = _wants(desired, observed)
    room = admit(desired, observed, wants, going=going, now=now)
    leaving = {action.model for action in (*departures, *room.turns, *room.evictions)}
    actions: list[Action] = [
        *_refusals(desired, observed, room.too_big),
        *_retries(desired, observed, now),
        *_configurations(desired, observed, leaving),
        *(
            ResumeEngine(model)
            for model in sorted(observed.engines)
            if _is_back(desired, observed, model)
        ),
        *departures,
        *room.turns,
        *room.evictions,
        *room.starts,
        *_spares(desired, observed, room.starts),
    ]
    return Plan(
        actions=tuple(actions),
        requeue_after=_next_look_s(desired, observed, now, room.next_turn_s),
        waits=_transit_waits(desired, observed) | room.waits | room.too_big,
        cannot_fit=frozenset(room.too_big),
    )


# ------------------------------------------------------------------ who goes


def _departures(
    desired: Desired, observed: Observed, now: float
) -> Iterator[StopEngine | DrainEngine]:
    """Engines that must end: drained while requests run on them, else stopped."""
    for model, engine in sorted(observed.engines.items()):
        reason = _why_leave(desired, observed, model, now)
        if not reason:
            continue
        if engine.in_flight == 0 or reason == "start_timeout":
            yield StopEngine(model, reason)
        elif engine.phase != "draining":
            yield DrainEngine(model, reason)


def _why_leave(desired: Desired, observed: Observed, model: ModelId, now: float) -> str:
    """Reason of a drain or stop that should be under way; empty = it stays."""
    engine, spec = observed.engines[model], desired.engines.get(model)
    if engine.phase not in WITH_WORKER or engine.phase == "stopping":
        return ""
    if _start_left_s(desired, engine, now) <= 0:
        return "start_timeout"
    if engine.phase == "draining":
        return "" if _is_back(desired, observed, model) else engine.leaving
    if observed.stopping:
        return "shutdown"
    if spec is None:
        return "removed"
    if engine.unload_requested:
        return "unload"
    if engine.load != spec.load:
        return "settings"
    return "ttl" if _idle_left_s(spec, engine, now) <= 0 else ""


def _is_back(desired: Desired, observed: Observed, model: ModelId) -> bool:
    """Whether an engine drains for something that was undone, so that it may go on."""
    engine, spec = observed.engines[model], desired.engines.get(model)
    is_loaded = engine.phase == "draining" and engine.loaded_at is not None
    is_undone = engine.leaving in ("settings", "removed") and spec and spec.load == engine.load
    return bool(is_loaded and is_undone and not observed.stopping)


def _start_left_s(desired: Desired, engine: EngineObserved, now: float) -> float:
    """Seconds that a start still has; infinite once loaded."""
    if engine.loaded_at is not None:
        return float("inf")
    return engine.started_at + desired.start_timeout_s - now


def _idle_left_s(spec: EngineSpec, engine: EngineObserved, now: float) -> float:
    """Seconds until an idle engine is unloaded; infinite while busy, pinned or without TTL."""
    if engine.phase != "ready" or engine.is_busy or spec.pin or spec.ttl_s is None:
        return float("inf")
    return engine.last_used + spec.ttl_s - now


# ------------------------------------------------------------------ who comes


def _wants(desired: Desired, observed: Observed) -> list[Want]:
    """Absent engines that someone wants, in the order in which they are served."""
    if observed.stopping:
        return []
    found: list[tuple[int, float, ModelId, Want]] = []
    for model, spec in desired.engines.items():
        engine = observed.engines.get(model, ABSENT)
        reason = _why_start(spec, engine)
        if reason and engine.phase == "absent":
            since = engine.waiting_since
            rank = ("pin", "request", "load", "preload").index(reason)
            want = Want(model=model, spec=spec, reason=reason, waiting_since=since)
            found.append((rank, since or 0.0, model, want))
    return [want for *_, want in sorted(found, key=lambda entry: entry[:3])]


def _why_start(spec: EngineSpec, engine: EngineObserved) -> str:
    """Reason of a StartEngine; empty = nobody wants it."""
    if spec.pin:
        return "pin"
    if engine.waiting > 0:
        return "request"
    if engine.load_requested:
        return "load"
    return "preload" if spec.preload and not engine.preloaded else ""


def _transit_waits(desired: Desired, observed: Observed) -> dict[ModelId, str]:
    """Wanted engines whose last worker, or last failure, must be got over first."""
    waits = {}
    for model, engine in sorted(observed.engines.items()):
        spec = desired.engines.get(model)
        if spec is None or observed.stopping or not _why_start(spec, engine):
            continue
        if engine.phase == "draining":
            waits[model] = f"its old worker still runs {engine.in_flight} requests"
        elif engine.phase == "stopping":
            waits[model] = "its old worker is ending"
        elif engine.phase == "backoff":
            waits[model] = f"is tried again soon: {engine.failure}"
    return waits


# ------------------------------------------------------------------ the small rules


def _refusals(
    desired: Desired, observed: Observed, too_big: dict[ModelId, str]
) -> Iterator[RefuseWaiting]:
    """Requests (and `omlxctl load`) that wait for what will not come."""
    for model, engine in sorted(observed.engines.items()):
        if engine.waiting == 0 and not engine.load_requested:
            continue
        if observed.stopping:
            yield RefuseWaiting(
                model, "model_unavailable", f"omlxd is shutting down; {model} takes no new requests"
            )
        elif model not in desired.engines:
            message = f"{model} is no longer served; omlxctl models lists what is"
            yield RefuseWaiting(model, "model_not_found", message)
        elif engine.phase == "failed" and not _has_changed(desired, model, engine):
            yield RefuseWaiting(model, "model_unavailable", _why_failed(model, engine))
        elif model in too_big:
            yield RefuseWaiting(model, "insufficient_memory", too_big[model])


def _why_failed(model: ModelId, engine: EngineObserved) -> str:
    return (
        f"{model} cannot be loaded: {engine.failure}; change its settings or files, "
        f"or try again with: omlxctl load {model}"
    )


def _retries(desired: Desired, observed: Observed, now: float) -> Iterator[RetryEngine]:
    for model, engine in sorted(observed.engines.items()):
        is_due = engine.retry_at is not None and engine.retry_at - now <= 0
        if is_due or _has_changed(desired, model, engine):
            yield RetryEngine(model)


def _has_changed(desired: Desired, model: ModelId, engine: EngineObserved) -> bool:
    """Whether what failed is no longer what is asked for."""
    if engine.phase not in ("backoff", "failed"):
        return False
    spec = desired.engines.get(model)
    return spec is None or spec.load != engine.failed_load


def _configurations(
    desired: Desired, observed: Observed, leaving: set[ModelId]
) -> Iterator[ConfigureEngine]:
    """Live settings for the engines that stay; one that still loads is told when it is ready."""
    for model, spec in sorted(desired.engines.items()):
        engine = observed.engines.get(model, ABSENT)
        if engine.phase == "ready" and engine.live != spec.live and model not in leaving:
            yield ConfigureEngine(model, spec.live)


def _spares(
    desired: Desired, observed: Observed, starts: list[StartEngine]
) -> Iterator[KeepSpares]:
    """No spare is made while a model loads: it would take cores from what someone waits for."""
    count = 0 if observed.stopping else desired.spare_workers
    is_loading = any(
        engine.phase in ("starting", "loading") for engine in observed.engines.values()
    )
    if is_loading or starts:
        count = min(count, observed.spares)
    if count != observed.spares:
        yield KeepSpares(count)


def _next_look_s(
    desired: Desired, observed: Observed, now: float, next_turn_s: float | None
) -> float | None:
    """Seconds until time alone changes the plan; None = never."""
    left = [] if next_turn_s is None else [next_turn_s]
    for model, engine in observed.engines.items():
        if engine.retry_at is not None:
            left.append(engine.retry_at - now)
        if engine.phase in WITH_WORKER and engine.phase != "stopping":
            left.append(_start_left_s(desired, engine, now))
            if model in desired.engines:
                left.append(_idle_left_s(desired.engines[model], engine, now))
    return min((seconds for seconds in left if 0 < seconds < float("inf")), default=None)
