"""What is wanted and what is: the two inputs of `plan`.

All times are seconds of one monotonic clock; all sizes are bytes. Both sides are immutable: the
controller owns the observed state and replaces entries, one event at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from omlxd.ipc.messages import LiveSettings, LoadSettings

Phase = Literal[
    "absent", "starting", "loading", "ready", "draining", "stopping", "backoff", "failed"
]
ModelId = str


# ------------------------------------------------------------------ desired


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One servable model with everything the reconciler needs to know of it."""

    load: LoadSettings
    live: LiveSettings
    pin: bool = False  # always loaded, never evicted
    preload: bool = False  # loaded once at start (or when the key turns true), evictable
    ttl_s: float | None = None  # idle time before it is unloaded; None = never
    estimate_bytes: int = 0  # weights + declared KV + overhead measured at earlier loads
    pinned_by: str = ""  # file that sets the pin, for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The whole desired state. A model that is not in `engines` is not served."""

    generation: int
    engines: Mapping[ModelId, EngineSpec]
    memory_limit_bytes: int
    hot_bytes: int = 0  # RAM for KV blocks, all engines together; within the limit
    spare_workers: int = 1
    start_timeout_s: float = 600.0


# ------------------------------------------------------------------ observed


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineObserved:
    """One engine as the controller sees it. No entry in `Observed.engines` = absent, never used."""

    phase: Phase = "absent"
    load: LoadSettings | None = None  # what its worker was started with
    live: LiveSettings | None = None  # what its worker was last told
    footprint_bytes: int = 0  # measured over its process
    reserved_bytes: int = 0  # the estimate it was admitted with, until measured as loaded
    in_flight: int = 0  # requests handed to the worker and not ended
    waiting: int = 0  # requests that wait for the engine to exist (not yet handed over)
    waiting_since: float | None = None  # since when someone has waited without a break
    load_requested: bool = False  # a load is owed (`omlxctl load`, new settings) until it is tried
    unload_requested: bool = False  # `omlxctl unload`, until gone
    preloaded: bool = False  # `preload` has had its one load
    phase_since: float = 0.0
    started_at: float = 0.0  # its worker was asked for
    loaded_at: float | None = None  # the weights are in; None again without a worker
    leaving: str = ""  # why it drains or stops
    last_used: float = 0.0  # end of the last request, or of the load
    deaths: tuple[float, ...] = ()  # unasked ends of its worker or failed loads, newest last
    retry_at: float | None = None  # in phase backoff
    failure: str = ""  # last reason in words, until a load succeeds
    failure_reason: str = ""  # the same as one CamelCase word
    failed_load: LoadSettings | None = None  # settings that failed: changing them tries again
    restarts: int = 0  # workers started after one that died

    @property
    def is_busy(self) -> bool:
        """Queued, loading, prefilling or streaming, on any route."""
        return self.in_flight > 0 or self.waiting > 0 or self.phase in ("starting", "loading")

    @property
    def held_bytes(self) -> int:
        """What it takes of the memory limit now."""
        if self.phase in ("absent", "backoff", "failed"):
            return 0
        return max(self.footprint_bytes, self.reserved_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The whole observed state."""

    engines: Mapping[ModelId, EngineObserved] = field(default_factory=dict)
    base_bytes: int = 0  # daemon and spare workers
    hot_bytes: int = 0  # of what engines hold: KV blocks that can go before an engine does
    hot_room_bytes: int | None = None  # all they may take while memory is short; None = no bound
    spares: int = 0  # warm or warming workers without a model
    stopping: bool = False  # the daemon shuts down: nothing new


# ------------------------------------------------------------------ actions


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Take a spare or a new worker and load the model. Becomes phase `starting`."""

    model: ModelId
    load: LoadSettings
    live: LiveSettings
    reserved_bytes: int
    reason: str  # "pin" | "preload" | "request" | "load"


@dataclass(frozen=True, slots=True)
class ConfigureEngine:
    """Hand live settings to a running engine."""

    model: ModelId
    live: LiveSettings


@dataclass(frozen=True, slots=True)
class DrainEngine:
    """Hand it no new requests; it is stopped when the running ones ended. Phase `draining`."""

    model: ModelId
    reason: str  # "removed" | "settings" | "unload" | "turn" | "shutdown"


@dataclass(frozen=True, slots=True)
class ResumeEngine:
    """Take a drain back: what it drained for is undone. The worker was never told of it."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class StopEngine:
    """End its worker now. Phase `stopping`.

    Nothing runs on it, except for `start_timeout`: requests handed to a load that never ends.
    """

    model: ModelId
    reason: str  # a DrainEngine reason, or "ttl" | "evicted" | "start_timeout"
    for_model: ModelId = ""  # evicted to make room for this one


@dataclass(frozen=True, slots=True)
class RetryEngine:
    """Back-off is over, or what failed has changed: phase `absent` again."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class RefuseWaiting:
    """Fail every request that waits for this engine, with the error `code` of omlxd.errors."""

    model: ModelId
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class KeepSpares:
    """Bring the number of warm workers without a model to `count`."""

    count: int


Action = (
    StartEngine
    | ConfigureEngine
    | DrainEngine
    | ResumeEngine
    | StopEngine
    | RetryEngine
    | RefuseWaiting
    | KeepSpares
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Output of the core. An empty `actions` with no `waits` is a settled world."""

    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None  # seconds until the next time-driven change
    waits: Mapping[ModelId, str] = field(default_factory=dict)  # why a wanted engine is not started
    cannot_fit: frozenset[ModelId] = frozenset()  # those of `waits` that waiting cannot help
