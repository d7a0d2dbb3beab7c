"""The memory choke point: who may start, who must go for it, who waits, who can never fit.

Rules:
- What is held now plus what starts now never exceeds the limit. Memory of an engine that stops
  counts until its worker is gone, so an eviction and the start it makes room for are two passes.
- Evicted is only what is ready, idle and not pinned: the one engine that suffices (the smallest
  such), else the fewest, least recently used first.
- Pins are served first, then models by how long someone has waited for them. Whoever waits keeps
  its place: those behind it start only if they fit beside it once it has its room.
- Requests for a loaded model are handed to it at once, so they never make models swap. The other
  side of that is bounded: after FAIR_WAIT_S of waiting, busy engines that stand in the way and
  have been loaded for as long take no new requests, finish what they run, and give their turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from omlxd.reconcile.state import (
    Desired,
    DrainEngine,
    EngineObserved,
    EngineSpec,
    ModelId,
    Observed,
    StartEngine,
    StopEngine,
)
from omlxd.units import format_size

FAIR_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """One absent engine that someone wants, in the order of service."""

    model: ModelId
    spec: EngineSpec
    reason: str  # of StartEngine
    waiting_since: float | None = None  # None = no request waits for it


@dataclass(slots=True)
class Admission:
    """What the pass does about memory."""

    starts: list[StartEngine] = field(default_factory=list)
    evictions: list[StopEngine] = field(default_factory=list)
    turns: list[DrainEngine] = field(default_factory=list)
    waits: dict[ModelId, str] = field(default_factory=dict)
    too_big: dict[ModelId, str] = field(default_factory=dict)  # the sum that can never work out
    next_turn_s: float | None = None  # seconds until a wait becomes too long


def admit(
    desired: Desired,
    observed: Observed,
    wants: Sequence[Want],
    *,
    going: frozenset[ModelId],
    now: float,
) -> Admission:
    """Serve `wants` in order; `going` are the engines that other rules stop in this pass."""
    ledger = _Ledger(desired, observed, going)
    out = Admission()
    out.evictions += [StopEngine(model, "evicted") for model in ledger.relieve()]
    for want in wants:
        _serve(ledger, want, now=now, out=out)
    return out


def _serve(ledger: _Ledger, want: Want, *, now: float, out: Admission) -> None:
    spec, need = want.spec, want.spec.estimate_bytes
    too_big = ledger.too_big(want.model, need)
    if too_big:
        out.too_big[want.model] = too_big
        return
    short = ledger.shortfall(need)
    if ledger.is_in_the_way(need):
        out.waits[want.model] = f"waits until {ledger.names(ledger.later)} had its turn"
        ledger.later[want.model] = need
    elif short <= 0 and need <= ledger.free():
        ledger.held[want.model] = need
        out.starts.append(StartEngine(want.model, spec.load, spec.live, need, want.reason))
    elif short <= 0 or (victims := choose_victims(ledger.idle(), short)):
        if short > 0:
            ledger.going.update(victims)
            out.evictions += [StopEngine(model, "evicted", want.model) for model in victims]
        out.waits[want.model] = f"waits until {ledger.names(ledger.going)} is gone"
        ledger.soon[want.model] = need
    else:
        _take_turn(ledger, want, short, now=now, out=out)
        out.waits[want.model] = ledger.why_busy(need)
        ledger.later[want.model] = need


def _take_turn(ledger: _Ledger, want: Want, short: int, *, now: float, out: Admission) -> None:
    """Nothing idle suffices: after a long wait the busy ones that stand in the way are drained."""
    if want.waiting_since is None:
        return
    short -= sum(ledger.held.get(model, 0) for model in ledger.draining)
    if short <= 0:
        return
    left = {
        model: _turn_left_s(engine, want.waiting_since, now)
        for model, engine in ledger.busy().items()
    }
    had_theirs = {model: ledger.engines[model] for model in left if left[model] <= 0}
    victims = choose_victims(ledger.idle() | had_theirs, short)
    turns = [model for model in victims if model in had_theirs]
    out.turns += [DrainEngine(model, "turn") for model in turns]
    ledger.draining.update(turns)
    if not victims:
        coming = [out.next_turn_s, *(seconds for seconds in left.values() if seconds > 0)]
        out.next_turn_s = min((s for s in coming if s is not None), default=None)


def _turn_left_s(engine: EngineObserved, waiting_since: float, now: float) -> float:
    """Seconds that a ready engine may still serve though someone waits for its memory."""
    assert engine.loaded_at is not None, "ready means loaded"
    return max(waiting_since, engine.loaded_at) + FAIR_WAIT_S - now


def choose_victims(engines: Mapping[ModelId, EngineObserved], need: int) -> tuple[ModelId, ...]:
    """Who goes so that `need` bytes come free; empty if all of them together do not suffice.

    One engine if one suffices: the smallest, then the least recently used. Else the fewest, and
    among equally few the least recently used.
    """
    assert need > 0, need
    by_age = sorted(engines, key=lambda model: (engines[model].last_used, model))
    held = {model: engines[model].held_bytes for model in by_age}
    enough = [model for model in by_age if held[model] >= need]
    if enough:
        return (min(enough, key=lambda model: held[model]),)
    count = _fewest(list(held.values()), need)
    chosen: list[ModelId] = []
    for place, model in enumerate(by_age):
        slots = count - len(chosen) - 1
        if slots < 0:
            break
        largest = sorted((held[other] for other in by_age[place + 1 :]), reverse=True)[:slots]
        if held[model] + sum(largest) >= need:
            chosen.append(model)
            need -= held[model]
    return tuple(chosen)


def _fewest(sizes: list[int], need: int) -> int:
    """How many of `sizes` it takes at least to reach `need`; 0 if all together do not."""
    total = 0
    for count, size in enumerate(sorted(sizes, reverse=True), start=1):
        total += size
        if total >= need:
            return count
    return 0


class _Ledger:
    """The sums of one pass. Every start, eviction and promise is entered here at once."""

    def __init__(self, desired: Desired, observed: Observed, going: frozenset[ModelId]) -> None:
        engines = sorted(observed.engines.items())
        self.limit = desired.memory_limit_bytes
        self.base = observed.base_bytes
        self.hot = observed.hot_bytes
        self.engines = observed.engines
        self.held = {m: engine.held_bytes for m, engine in engines if engine.held_bytes > 0}
        self.going = {m for m, engine in engines if engine.phase == "stopping"} | going
        self.draining = {m for m, engine in engines if engine.phase == "draining"}
        self.pinned = {model for model, spec in desired.engines.items() if spec.pin}
        self.soon: dict[ModelId, int] = {}  # gets its room from those that are going
        self.later: dict[ModelId, int] = {}  # waits for someone busy

    def free(self) -> int:
        return self.limit - self.base - sum(self.held.values())

    def shortfall(self, need: int) -> int:
        """What is missing for `need` once all that is going is gone."""
        leaving = sum(size for model, size in self.held.items() if model in self.going)
        return need + sum(self.soon.values()) - self.free() - leaving

    def is_in_the_way(self, need: int) -> bool:
        """Whether `need`, granted now, could keep those before it from their room."""
        lasting = self.pins() | self.soon | self.later
        return bool(self.later) and self.base + sum(lasting.values()) + need > self.limit

    def pins(self) -> dict[ModelId, int]:
        """What pinned engines hold or are about to get; nothing but the user takes it back."""
        sizes = self.soon | self.later | self.held
        return {model: size for model, size in sizes.items() if model in self.pinned}

    def idle(self) -> dict[ModelId, EngineObserved]:
        return {m: e for m, e in self._ready_unpinned().items() if not e.is_busy}

    def busy(self) -> dict[ModelId, EngineObserved]:
        return {m: e for m, e in self._ready_unpinned().items() if e.is_busy}

    def _ready_unpinned(self) -> dict[ModelId, EngineObserved]:
        spared = self.going | self.draining | self.pinned
        return {
            model: engine
            for model, engine in self.engines.items()
            if engine.phase == "ready" and model in self.held and model not in spared
        }

    def relieve(self) -> list[ModelId]:
        """Above the limit, by more than blocks take: the idle ones that go, least recently used
        first, until it fits.
        """
        idle = self.idle()
        gone = []
        for model in sorted(idle, key=lambda model: (idle[model].last_used, model)):
            if self.shortfall(0) <= self.hot:
                break
            self.going.add(model)
            gone.append(model)
        return gone

    def too_big(self, model: ModelId, need: int) -> str:
        """The sum in words if `need` does not fit beside the pins alone; else empty."""
        pins = {pin: size for pin, size in self.pins().items() if pin != model}
        if self.base + sum(pins.values()) + need <= self.limit:
            return ""
        parts = [f"limit {format_size(self.limit)}", f"daemon {format_size(self.base)}"]
        parts += [f"pinned {pin} {format_size(size)}" for pin, size in sorted(pins.items())]
        advice = "unpin a model, raise" if pins else "raise"
        return (
            f"{model} needs {format_size(need)} and can never fit: {', '.join(parts)}; "
            f"{advice} memory.max_process_memory or choose a smaller model"
        )

    def why_busy(self, need: int) -> str:
        in_the_way = (self.held.keys() | self.soon.keys()) - self.pinned - self.going
        return (
            f"needs {format_size(need)}, {format_size(max(0, self.free()))} free; "
            f"waits for {self.names(in_the_way)} to become idle"
        )

    def names(self, models: Iterable[ModelId]) -> str:
        """Of those that hold memory or wait for it."""
        known = self.held.keys() | self.soon.keys() | self.later.keys()
        return ", ".join(sorted(known & set(models)))
