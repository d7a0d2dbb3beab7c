"""Conditions: what status says of an engine and of the daemon, with a reason for every answer.

A condition is written at first sight and keeps its time while its status stays the same. Types and
reasons are CamelCase; a reason names one situation and is never empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from omlxd.reconcile.phases import WITH_WORKER
from omlxd.reconcile.state import Desired, EngineObserved, EngineSpec, ModelId, Observed, Plan
from omlxd.units import format_size

Truth = Literal["True", "False", "Unknown"]

ABSENT = EngineObserved()

NOT_READY_REASONS = {
    "absent": "NotLoaded",
    "starting": "Starting",
    "loading": "Loading",
    "draining": "Draining",
    "stopping": "Stopping",
    "backoff": "BackingOff",
}


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: Truth
    reason: str
    message: str = ""
    last_transition_time: str = ""  # RFC 3339, UTC; set by `transition`


def transition(
    old: Iterable[Condition], new: Iterable[Condition], now_rfc3339: str
) -> tuple[Condition, ...]:
    """`new`, each with the time at which its status last became what it is."""
    before = {condition.type: condition for condition in old}
    result = []
    for condition in new:
        last = before.get(condition.type)
        kept = last is not None and last.status == condition.status
        time = last.last_transition_time if last is not None and kept else now_rfc3339
        result.append(replace(condition, last_transition_time=time))
    return tuple(result)


def _truth(value: bool) -> Truth:
    return "True" if value else "False"


# ------------------------------------------------------------------ of one engine


def engine_conditions(
    model: ModelId, desired: Desired, observed: Observed, plan: Plan
) -> tuple[Condition, ...]:
    """Ready, Admitted, UpToDate and CrashLoop of one model that is served."""
    spec = desired.engines[model]
    engine = observed.engines.get(model, ABSENT)
    return (
        _ready(engine, plan.waits.get(model, "")),
        _admitted(model, engine, plan),
        _up_to_date(spec, engine),
        _crash_loop(engine),
    )


def servable(is_servable: bool, reason: str) -> Condition:
    """Whether what was found on disk can be served at all; `reason` is the sentence why not."""
    if is_servable:
        return Condition("Servable", "True", "FilesComplete")
    return Condition("Servable", "False", "NotServable", reason)


def _ready(engine: EngineObserved, wait: str) -> Condition:
    if engine.phase == "ready":
        return Condition("Ready", "True", "Serving")
    reason = NOT_READY_REASONS.get(engine.phase) or engine.failure_reason
    return Condition("Ready", "False", reason, engine.failure or wait)


def _admitted(model: ModelId, engine: EngineObserved, plan: Plan) -> Condition:
    """Whether it has its memory; Unknown while nobody wants it."""
    if model in plan.cannot_fit:
        return Condition("Admitted", "False", "CannotFit", plan.waits[model])
    if engine.phase in WITH_WORKER:
        held = f"holds {format_size(engine.held_bytes)}"
        return Condition("Admitted", "True", "HoldsMemory", held)
    if model in plan.waits:
        reason = "BackingOff" if engine.phase == "backoff" else "WaitsForRoom"
        return Condition("Admitted", "False", reason, plan.waits[model])
    return Condition("Admitted", "Unknown", "NotWanted")


def _up_to_date(spec: EngineSpec, engine: EngineObserved) -> Condition:
    """Whether its worker runs with the settings in force."""
    if engine.phase not in WITH_WORKER:
        return Condition("UpToDate", "True", "NotLoaded")
    if engine.load != spec.load:
        message = "the running requests finish first, then it is replaced"
        return Condition("UpToDate", "False", "ReplacementPending", message)
    if engine.live != spec.live:
        return Condition("UpToDate", "False", "SettingsPending", "handed over when it is ready")
    return Condition("UpToDate", "True", "SettingsInForce")


def _crash_loop(engine: EngineObserved) -> Condition:
    if engine.phase == "failed" and engine.failure_reason == "CrashLoop":
        return Condition("CrashLoop", "True", "CrashLoop", engine.failure)
    if engine.deaths:
        message = f"{len(engine.deaths)} deaths, the last: {engine.failure or 'it recovered'}"
        return Condition("CrashLoop", "False", "DiedBefore", message)
    return Condition("CrashLoop", "False", "NoDeaths")


# ------------------------------------------------------------------ of the daemon


def daemon_conditions(desired: Desired, observed: Observed, plan: Plan) -> tuple[Condition, ...]:
    """Ready (every pinned model is), Reconciled (nothing left to do) and MemoryPressure."""
    return (
        _pins_ready(desired, observed),
        _reconciled(desired, observed, plan),
        _memory_pressure(desired, observed, plan),
    )


def _pins_ready(desired: Desired, observed: Observed) -> Condition:
    if observed.stopping:
        return Condition("Ready", "False", "ShuttingDown")
    pins = sorted(model for model, spec in desired.engines.items() if spec.pin)
    if not pins:
        return Condition("Ready", "True", "NothingPinned")
    missing = [
        f"{model} is {engine.phase}"
        for model in pins
        if (engine := observed.engines.get(model, ABSENT)).phase != "ready"
    ]
    if missing:
        return Condition("Ready", "False", "PinsNotReady", ", ".join(missing))
    return Condition("Ready", "True", "AllPinsReady")


def _reconciled(desired: Desired, observed: Observed, plan: Plan) -> Condition:
    engines = observed.engines
    moving = sorted(m for m, e in engines.items() if e.phase in WITH_WORKER - {"ready"})
    broken = sorted(m for m, e in engines.items() if e.phase == "failed" and m in desired.engines)
    if plan.actions or moving:
        return Condition("Reconciled", "False", "Converging", ", ".join(moving))
    if plan.waits:
        message = "; ".join(f"{model}: {why}" for model, why in sorted(plan.waits.items()))
        return Condition("Reconciled", "False", "Waiting", message)
    if broken:
        return Condition("Reconciled", "False", "EnginesFailed", ", ".join(broken))
    return Condition("Reconciled", "True", "Settled")


def _memory_pressure(desired: Desired, observed: Observed, plan: Plan) -> Condition:
    held = observed.base_bytes + sum(e.held_bytes for e in observed.engines.values())
    limit = desired.memory_limit_bytes
    message = f"{format_size(held)} of {format_size(limit)}"
    if observed.hot_room_bytes is not None:
        message += f"; KV blocks of all engines may take {format_size(observed.hot_room_bytes)}"
    if held > limit:
        return Condition("MemoryPressure", "True", "AboveLimit", message)
    waiting = plan.waits.keys() - {m for m, e in observed.engines.items() if e.phase != "absent"}
    if waiting:
        names = ", ".join(sorted(waiting))
        return Condition("MemoryPressure", "True", "ModelsWaitForRoom", f"{message}; {names}")
    if observed.hot_room_bytes is not None:
        return Condition("MemoryPressure", "True", "HotShrunk", message)
    return Condition("MemoryPressure", "False", "WithinLimit", message)
