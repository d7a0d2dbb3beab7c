"""What is served and how: the spec and the discovered folders, put together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from omlxd.api.ports import ServedModel
from omlxd.ipc.messages import Kind, LiveSettings, LoadSettings, Sampling
from omlxd.models.card import ModelCard
from omlxd.reconcile.state import Desired, EngineSpec, ModelId
from omlxd.spec.model import ModelSpec, Spec
from omlxd.units import format_size

UNMEASURED_OVERHEAD = 256 * 2**20  # bytes a worker takes beside its weights, until measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Measured at earlier loads of one model."""

    overhead_bytes: int = UNMEASURED_OVERHEAD  # footprint after the load − weight bytes
    kv_bytes_per_token: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine."""

    ram_bytes: int
    default_limit_bytes: int  # what `max_process_memory = "auto"` means


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model that is declared, or discovered and served."""

    id: ModelId
    spec: ModelSpec
    card: ModelCard | None
    declared: bool
    reason: str = ""  # why it cannot be served; "" = it can
    taken: frozenset[str] = frozenset()  # of its aliases, those that are the id of another model

    @property
    def servable(self) -> bool:
        return not self.reason

    @property
    def aliases(self) -> tuple[str, ...]:
        """Those that lead to it."""
        return tuple(alias for alias in self.spec.aliases if alias not in self.taken)

    @property
    def kind(self) -> Kind:
        return self.spec.kind or (self.card.kind if self.card else "llm")

    @property
    def max_context(self) -> int | None:
        """Served window in tokens: the model's own or the smaller one that was asked for."""
        limits = [x for x in (self.spec.max_context, self.card and self.card.max_context) if x]
        return min(limits, default=None)

    @property
    def reported_context(self) -> int | None:
        """Window as clients see it: served window × context_scale_factor."""
        window = self.max_context
        return None if window is None else int(window * self.spec.context_scale_factor)


def build_catalog(
    spec: Spec,
    cards: Mapping[ModelId, ModelCard],
    *,
    ram: int,
    figures: Mapping[ModelId, Figures],
) -> dict[ModelId, Entry]:
    """Every declared model, servable or not, and every undeclared one with sound files.

    `cards` come from a scan that knew what is declared; a model declared since then has none yet.
    """
    entries = {name: _entry(name, model, cards.get(name)) for name, model in spec.models.items()}
    if spec.discovery.serve_undeclared:
        entries |= {
            card.id: Entry(id=card.id, spec=spec.effective(card.id), card=card, declared=False)
            for card in cards.values()
            if card.servable and card.id not in entries
        }
    return {
        name: replace(
            entry,
            reason=entry.reason or _too_small(entry, ram, figures.get(name)),
            taken=frozenset(entry.spec.aliases) & entries.keys(),
        )
        for name, entry in entries.items()
    }


def _too_small(entry: Entry, ram: int, figures: Figures | None) -> str:
    """Why `max_memory` leaves no room for a single token; "" if it does, or if there is none."""
    if entry.spec.max_memory is None or entry.card is None:
        return ""
    cap, weights = entry.spec.max_memory.of(ram), entry.card.weights_bytes
    overhead = figures.overhead_bytes if figures else 0  # not known before the first load
    if cap > weights + overhead:
        return ""
    beside = f" and {format_size(overhead)} beside them" if overhead else ""
    return (
        f"max_memory = {format_size(cap)} has no room for it: its weights take "
        f"{format_size(weights)}{beside}; raise max_memory or unset it"
    )


def _entry(name: str, model: ModelSpec, card: ModelCard | None) -> Entry:
    reason = "its folder has not been looked for yet" if card is None else card.reason
    if card is not None and not card.servable:
        assert reason, name
    return Entry(id=name, spec=model, card=card, declared=True, reason=reason)


def memory_limit(spec: Spec, host: Host) -> int:
    """Bytes that daemon and workers may take together."""
    limit = spec.memory.max_process_memory
    return host.default_limit_bytes if limit == "auto" else limit.of(host.ram_bytes)


def engine_spec(
    entry: Entry,
    spec: Spec,
    *,
    figures: Figures,
    ram: int,
    pinned_by: str,
    template: str | None,
    cold_dir: str,
) -> EngineSpec:
    """The reconciler's view of one servable entry."""
    assert entry.card is not None
    model = entry.spec
    max_memory = None if model.max_memory is None else model.max_memory.of(ram)
    kv = figures.kv_bytes_per_token * (model.max_context or 0)
    estimate = entry.card.weights_bytes + kv + figures.overhead_bytes
    return EngineSpec(
        load=LoadSettings(
            model_id=entry.id,
            path=str(entry.card.path),
            kind=entry.kind,
            trust_remote_code=model.trust_remote_code,
            chat_template=template,
            max_memory_bytes=max_memory,
            block_tokens=spec.cache.block_tokens,
            cold_dir=cold_dir,
            fingerprint=entry.card.fingerprint,
        ),
        live=live_settings(model, spec),
        pin=model.pin,
        preload=model.preload,
        ttl_s=model.ttl,
        estimate_bytes=estimate if max_memory is None else min(estimate, max_memory),
        pinned_by=pinned_by if model.pin else "",
    )


def live_settings(model: ModelSpec, spec: Spec) -> LiveSettings:
    """What a running engine takes over at once."""
    steps = spec.scheduler.prefill_step_tokens
    return LiveSettings(
        max_concurrent_requests=(
            model.max_concurrent_requests or spec.scheduler.max_concurrent_requests
        ),
        max_queue=spec.scheduler.max_queue,
        prefill_step_tokens=None if steps == "auto" else steps,
        max_context=model.max_context,
        max_output_tokens=model.max_output_tokens,
        context_scale_factor=model.context_scale_factor,
        chat_template_kwargs=dict(model.chat_template_kwargs),
        sampling=Sampling(**model.sampling.model_dump(exclude_none=True)),
        cold_min_free_bytes=spec.cache.cold_min_free.of(0),
        log_prompts=spec.logging.prompts,
        reasoning=model.reasoning,
    )


def desired_state(
    catalog: Mapping[ModelId, Entry],
    spec: Spec,
    *,
    generation: int,
    host: Host,
    figures: Mapping[ModelId, Figures],
    pinned_by: Mapping[ModelId, str],
    templates: Mapping[ModelId, str],
    cold_dir: str,
) -> Desired:
    """The whole desired state of one accepted spec over what was discovered."""
    limit = memory_limit(spec, host)
    return Desired(
        generation=generation,
        engines={
            entry.id: engine_spec(
                entry,
                spec,
                figures=figures.get(entry.id, Figures()),
                ram=host.ram_bytes,
                pinned_by=pinned_by.get(entry.id, ""),
                template=templates.get(entry.id if entry.declared else ""),
                cold_dir=cold_dir,
            )
            for entry in catalog.values()
            if entry.servable
        },
        memory_limit_bytes=limit,
        hot_bytes=spec.cache.hot.of(limit),
        spare_workers=spec.engine.spare_workers,
        start_timeout_s=spec.engine.start_timeout or 1e9,
    )


def served_model(entry: Entry, phase: str) -> ServedModel:
    """One servable entry as HTTP clients see it."""
    return ServedModel(
        id=entry.id,
        kind=entry.kind,
        aliases=entry.aliases,
        max_context=entry.reported_context,
        model_context=entry.card.max_context if entry.card else None,
        max_output_tokens=entry.spec.max_output_tokens,
        created=entry.card.created if entry.card else 0,
        phase=phase,
        pin=entry.spec.pin,
        mcp=entry.spec.mcp,
    )
