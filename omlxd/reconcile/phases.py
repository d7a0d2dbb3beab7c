"""The life of an engine: one table, one way to move.

    absent → starting → loading → ready → draining → stopping → absent
    draining → ready                                (what it drained for was undone)
    any phase with a worker → backoff | failed      (its worker died, or could not load)
    backoff | failed → absent                       (tried again, or no longer wanted)

Two things are not in the table: who decides (`plan`), and what else changes with a move (`events`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omlxd.reconcile.state import EngineObserved, Phase

TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    "absent": frozenset({"starting"}),
    "starting": frozenset({"loading", "draining", "stopping", "backoff", "failed"}),
    "loading": frozenset({"ready", "draining", "stopping", "backoff", "failed"}),
    "ready": frozenset({"draining", "stopping", "backoff", "failed"}),
    "draining": frozenset({"ready", "stopping", "backoff", "failed"}),
    "stopping": frozenset({"absent", "backoff", "failed"}),
    "backoff": frozenset({"absent"}),
    "failed": frozenset({"absent"}),
}

WITH_WORKER: frozenset[Phase] = frozenset({"starting", "loading", "ready", "draining", "stopping"})
"""The phases in which a process exists, so memory is held and a second copy must not start."""


class InvalidTransition(RuntimeError):
    """A bug of ours: the table has no such move. The engine's state is as it was."""

    def __init__(self, model: str, phase: Phase, to: Phase) -> None:
        super().__init__(f"{model}: no transition from {phase} to {to}")
        self.model = model
        self.phase: Phase = phase
        self.to: Phase = to


def move(engine: EngineObserved, to: Phase, now: float) -> EngineObserved:
    """The engine in phase `to` since `now`, or InvalidTransition if the table has no such move."""
    if to not in TRANSITIONS[engine.phase]:
        raise InvalidTransition(model_name(engine), engine.phase, to)
    return replace(engine, phase=to, phase_since=now)


def model_name(engine: EngineObserved) -> str:
    """For messages: the model of the worker it has or last had."""
    settings = engine.load or engine.failed_load
    return settings.model_id if settings else "engine without a worker"


def broken_invariants(engine: EngineObserved) -> list[str]:
    """What does not hold of this engine though it always must; empty in a correct program."""
    has_worker = engine.phase in WITH_WORKER
    leaves = engine.phase in ("draining", "stopping")
    rules = {
        "counts are never negative": engine.in_flight >= 0 and engine.waiting >= 0,
        "a worker has settings, and only a worker": has_worker
        == (engine.load is not None)
        == (engine.live is not None),
        "memory is held by a worker only": has_worker
        or engine.footprint_bytes == engine.reserved_bytes == 0,
        "requests are in flight in a worker only": has_worker or engine.in_flight == 0,
        "nothing is handed to a worker that has not begun to load": engine.phase != "starting"
        or engine.in_flight == 0,
        "what leaves has a reason, and only what leaves": leaves == bool(engine.leaving),
        "an unload is asked of a worker only": has_worker or not engine.unload_requested,
        "ready means loaded": engine.phase != "ready" or engine.loaded_at is not None,
        "loaded needs a worker": has_worker or engine.loaded_at is None,
        "backoff has a time to try again, and only backoff": (engine.phase == "backoff")
        == (engine.retry_at is not None),
        "what failed says so": engine.phase not in ("backoff", "failed")
        or bool(engine.failure and engine.failure_reason and engine.failed_load),
        "someone waits since some time": (engine.waiting > 0) == (engine.waiting_since is not None),
    }
    return [
        f"{model_name(engine)}, {engine.phase}: {rule}"
        for rule, holds in rules.items()
        if not holds
    ]
