"""What happened, written down: the log lines and events of engines, files and the daemon."""

from __future__ import annotations

import time
from collections.abc import Sequence

from omlxd.daemon.supervisor import WorkerExit
from omlxd.ipc.messages import Loaded, LoadFailed
from omlxd.observe import log
from omlxd.observe.events import EventRing, EventType
from omlxd.reconcile.state import EngineObserved, ModelId
from omlxd.spec.report import Change, Problem

GIB = 2**30

_UNLOADED = {
    "ttl": ("UnloadedIdle", "idle for its whole ttl"),
    "evicted": ("EvictedForMemory", "made room"),
    "removed": ("Removed", "no longer in the files in force"),
    "settings": ("Replaced", "its settings or files changed"),
    "unload": ("Unloaded", "as asked"),
    "turn": ("GaveTurn", "another model has waited long enough"),
    "start_timeout": ("StartTimeout", "did not load in time"),
    "shutdown": ("ShutDown", "omlxd stops"),
}


class Journal:
    """One line in the log and one event for everything that users ask about later."""

    def __init__(self, ring: EventRing) -> None:
        self.ring = ring

    def event(
        self, reason: str, message: str, *, model: str = "", type: EventType = "Normal"
    ) -> None:
        self.ring.append(reason, message, now=time.time(), model=model, type=type)

    # -------------------------------------------------------------- engines

    def loaded(self, model: ModelId, loaded: Loaded, footprint: int, reason: str) -> None:
        gib = footprint / GIB
        log.get().info(
            "model_load",
            model=model,
            duration_s=round(loaded.duration_s, 3),
            memory_gb=round(gib, 3),
            reason=reason,
            batches=loaded.batches,
            max_context=loaded.max_context,
        )
        message = f"loaded in {loaded.duration_s:.1f} s, {gib:.2f} GiB"
        self.event("Loaded", message, model=model)

    def load_failed(self, model: ModelId, failed: LoadFailed) -> None:
        log.get().error("model_load", model=model, error=failed.message, permanent=failed.permanent)
        self.event("LoadFailed", failed.message, model=model, type="Warning")

    def draining(self, model: ModelId, reason: str) -> None:
        word, why = _UNLOADED[reason]
        self.event("Draining", f"finishes what it runs: {why} ({word})", model=model)

    def resumed(self, model: ModelId) -> None:
        self.event("Resumed", "what it drained for was undone; it goes on", model=model)

    def stopping(self, model: ModelId, reason: str, for_model: ModelId) -> None:
        word, why = _UNLOADED[reason]
        room = f" for {for_model}" if for_model else ""
        self.event(word, why + room, model=model)

    def refused(self, model: ModelId, message: str) -> None:
        log.get().warning("model_refused", model=model, reason=message)
        self.event("RequestsRefused", message, model=model, type="Warning")

    def gone(
        self,
        model: ModelId,
        before: EngineObserved,
        after: EngineObserved,
        how: WorkerExit | None,
        now: float,
    ) -> None:
        """Its worker ended: as asked, or died."""
        restart = None if after.retry_at is None else round(after.retry_at - now, 1)
        fields = {
            "model": model,
            "pid": how.pid if how else None,
            "code": how.code if how else None,
            "signal": how.signal if how else None,
            "restart_in_s": restart,
        }
        if after.phase == "absent":
            log.get().info("worker_exit", **fields)
        else:
            log.get().error("worker_exit", reason=after.failure, phase=after.phase, **fields)
            self.event(after.failure_reason, after.failure, model=model, type="Warning")
        if before.loaded_at is not None:
            log.get().info(
                "model_unload",
                model=model,
                duration_s=round(now - before.loaded_at, 3),
                memory_gb=round(before.footprint_bytes / GIB, 3),
                reason=before.leaving or "died",
            )

    # -------------------------------------------------------------- cache

    def cache_evicted(
        self, *, tier: str, blocks: int, bytes: int, reason: str, model: ModelId = ""
    ) -> None:
        of_model = {"model": model} if model else {}
        log.get().info(
            "cache_evict", tier=tier, blocks=blocks, bytes=bytes, reason=reason, **of_model
        )

    def cold_tier_lost(self, reason: str, message: str, *, model: ModelId = "") -> None:
        of_model = {"model": model} if model else {}
        log.get().warning("cold_tier", reason=reason, message=message, **of_model)
        self.event("ColdTierLost", f"{reason}: {message}", model=model, type="Warning")

    def cold_tier_back(self, folder: str) -> None:
        log.get().info("cold_tier", reason="Ready", message=folder)
        self.event("ColdTierBack", f"blocks are kept in {folder} again")

    # -------------------------------------------------------------- files

    def applied(self, generation: int, changes: Sequence[Change], *, is_first: bool) -> None:
        listed = [f"{c.key} ({c.reload})" for c in changes]
        log.get().info("config_applied", generation=generation, changes=listed)
        shown = ", ".join(listed[:8])
        if not listed:
            shown = "no setting has another value (a comment, or a file that is referred to)"
        if is_first:
            shown = "the first in force since the start"
        more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
        self.event("ConfigApplied", f"generation {generation}: {shown}{more}")

    def rejected(self, problems: Sequence[Problem]) -> None:
        log.get().error(
            "config_rejected",
            problems=[f"{p.file}:{p.line}:{p.column}: {p.key}: {p.message}" for p in problems],
        )
        first = problems[0]
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems, the first"
        message = f"{count}: {first.file}:{first.line}: {first.message}"
        self.event("ConfigRejected", message, type="Warning")

    def override_released(self, model: ModelId, key: str) -> None:
        log.get().info("override_released", model=model, key=key)
        message = f"{key} was saved in omlx.toml, so what omlxctl had set for it is gone"
        self.event("OverrideReleased", message, model=model)
