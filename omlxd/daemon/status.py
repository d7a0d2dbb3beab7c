"""The state of the daemon in the shapes of the control socket. Pure: everything is handed in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from omlxd.control.wire import Condition as WireCondition
from omlxd.control.wire import ModelStatus
from omlxd.daemon.catalog import Entry
from omlxd.ipc.messages import Loaded, Stats
from omlxd.reconcile.conditions import Condition
from omlxd.reconcile.phases import WITH_WORKER
from omlxd.reconcile.state import EngineObserved


def rfc3339(unix: float) -> str:
    moment = datetime.fromtimestamp(unix, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wire_conditions(conditions: Iterable[Condition]) -> list[WireCondition]:
    return [
        WireCondition(c.type, c.status, c.reason, c.message, c.last_transition_time)
        for c in conditions
    ]


def model_status(
    entry: Entry,
    engine: EngineObserved,
    *,
    pid: int | None,
    loaded: Loaded | None,
    stats: Stats | None,
    conditions: Iterable[Condition],
    wait: str,
    now: float,
) -> ModelStatus:
    """One line of `omlxctl status`."""
    has_worker = engine.phase in WITH_WORKER
    ttl = None if entry.spec.pin else entry.spec.ttl
    idle = expires = None
    if engine.phase == "ready" and not engine.is_busy:
        idle = max(0.0, now - engine.last_used)
        expires = None if ttl is None else max(0.0, ttl - idle)
    queued = stats.waiting if stats is not None else 0
    return ModelStatus(
        id=entry.id,
        kind=entry.kind,
        aliases=list(entry.aliases),
        phase=engine.phase,
        pin=entry.spec.pin,
        pid=pid if has_worker else None,
        footprint_bytes=engine.footprint_bytes,
        weights_bytes=entry.card.weights_bytes if entry.card else 0,
        max_context=loaded.max_context if loaded else entry.max_context,
        running=max(0, engine.in_flight - queued),
        waiting=engine.waiting + min(queued, engine.in_flight),
        ttl_s=ttl,
        idle_s=None if idle is None else round(idle, 1),
        expires_in_s=None if expires is None else round(expires, 1),
        restarts=engine.restarts,
        conditions=wire_conditions(conditions),
        path=str(entry.card.path) if entry.card and entry.card.path != Path() else "",
        servable=entry.servable,
        reason=entry.reason or engine.failure or wait,
    )


def loaded_facts(loaded: Loaded | None) -> tuple[Condition, ...]:
    """What the worker found out about its model at load."""
    if loaded is None:
        return ()
    batching = (
        Condition("Batching", "True", "EveryCacheMerges")
        if loaded.batches
        else Condition("Batching", "False", "OneAtATime", loaded.batch_reason)
    )
    reuse = (
        Condition("PrefixReuse", "True", "EveryCacheRestores")
        if loaded.prefix_reuse
        else Condition("PrefixReuse", "False", "NotRestorable", loaded.prefix_reuse_reason)
    )
    return (batching, reuse)
