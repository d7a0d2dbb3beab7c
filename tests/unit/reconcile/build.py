"""Short ways to say what is wanted and what is. Sizes are small numbers: the core does not care."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omlxd.ipc.messages import LiveSettings, LoadSettings
from omlxd.reconcile.phases import WITH_WORKER, broken_invariants
from omlxd.reconcile.state import Desired, EngineObserved, EngineSpec, Observed

LIVE = LiveSettings()
OTHER_LIVE = LiveSettings(max_queue=7)
NOW = 1000.0


def load_of(model: str, *, block_tokens: int = 64, files: str = "") -> LoadSettings:
    return LoadSettings(
        model_id=model,
        path=f"/models/{model}",
        kind="llm",
        block_tokens=block_tokens,
        fingerprint=files,
    )


def spec(model: str, **changes: Any) -> EngineSpec:
    """A model of 10 bytes without TTL, unless `changes` says otherwise."""
    base = EngineSpec(load=load_of(model), live=LIVE, estimate_bytes=10)
    return replace(base, **changes)


def desired(*specs: EngineSpec, limit: int = 100, **changes: Any) -> Desired:
    engines = {spec.load.model_id: spec for spec in specs}
    base = Desired(generation=1, engines=engines, memory_limit_bytes=limit, spare_workers=0)
    return replace(base, **changes)


def observed(**changes: Any) -> Observed:
    """`observed(A=engine(…), stopping=True)`: capital names are engines."""
    engines = {name: value for name, value in changes.items() if name[0].isupper()}
    rest = {name: value for name, value in changes.items() if not name[0].isupper()}
    return Observed(engines=engines, **rest)


def engine(phase: str, model: str = "A", **changes: Any) -> EngineObserved:
    """An engine that keeps every invariant of its phase; 10 bytes if it has a worker."""
    facts: dict[str, Any] = {"phase": phase, "phase_since": NOW - 1}
    if phase in WITH_WORKER:
        facts |= {"load": load_of(model), "live": LIVE, "started_at": NOW - 1}
        facts |= {"reserved_bytes": 10} if phase in ("starting", "loading") else {}
    if phase in ("ready", "draining", "stopping"):
        facts |= {"footprint_bytes": 10, "loaded_at": NOW - 1, "last_used": NOW - 1}
    if phase in ("draining", "stopping"):
        facts |= {"leaving": "settings"}
    if phase in ("backoff", "failed"):
        facts |= {"failure": "boom", "failure_reason": "WorkerDied", "failed_load": load_of(model)}
        facts |= {"deaths": (NOW - 1,), "retry_at": NOW + 1 if phase == "backoff" else None}
    facts |= changes
    if facts.get("waiting", 0) > 0:
        facts.setdefault("waiting_since", NOW)
    made = EngineObserved(**facts)
    assert not broken_invariants(made), broken_invariants(made)
    return made
