"""The control socket's view of the daemon: implements `omlxd.control.ports.Control`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from omlxd import __version__
from omlxd.control.wire import (
    Accepted,
    ConfigStatus,
    ConfigView,
    Event,
    MemoryStatus,
    ModelStatus,
    PlanResult,
    RequestStatus,
    SettingsPatch,
    Status,
)
from omlxd.daemon.cache_service import CacheService
from omlxd.daemon.catalog import Entry
from omlxd.daemon.status import model_status, wire_conditions
from omlxd.errors import Conflict, ModelUnavailable, SpecInvalid
from omlxd.observe import events as ring

if TYPE_CHECKING:
    from omlxd.daemon.daemon import Daemon

FOLLOW_INTERVAL_S = 0.1  # snapshots of one follower are at least this far apart


class ControlService:
    """Reads answer from what is; writes go to the files and through the controller."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.cache = CacheService(daemon)
        self._started = time.monotonic()
        self._changed: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Something that `status` shows has changed."""
        for follower in self._changed:
            follower.set()

    # -------------------------------------------------------------- reads

    def status(self) -> Status:
        daemon, controller = self._daemon, self._daemon.controller
        config = daemon.config
        footprint = controller.base_bytes + sum(
            engine.footprint_bytes for engine in controller.engines.values()
        )
        return Status(
            version=__version__,
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - self._started, 3),
            generation=config.generation,
            observed_generation=controller.observed_generation,
            config=ConfigStatus(
                path=str(config.path), valid=not config.problems, problems=list(config.problems)
            ),
            listen=daemon.listeners.addresses,
            memory=MemoryStatus(
                limit_bytes=controller.desired.memory_limit_bytes,
                footprint_bytes=footprint,
                hot_bytes=controller.cache.hot_bytes,
                cold_bytes=daemon.cold.held_bytes,
            ),
            conditions=wire_conditions(daemon.conditions.daemon),
            models=[self._model(entry) for entry in (daemon.catalog | daemon.departing).values()],
        )

    def _model(self, entry: Entry) -> ModelStatus:
        controller = self._daemon.controller
        worker = controller.fleet.worker_of(entry.id)
        return model_status(
            entry,
            controller.engine(entry.id),
            pid=worker.pid if worker else None,
            loaded=controller.facts.get(entry.id),
            stats=controller.stats.get(entry.id),
            conditions=self._daemon.conditions.of_model(entry.id),
            wait=controller.last_plan.waits.get(entry.id, ""),
            now=time.monotonic(),
        )

    def requests(self) -> list[RequestStatus]:
        return self._daemon.gateway.request_statuses(self._daemon.controller.rows())

    def config_view(self) -> ConfigView:
        config = self._daemon.config
        return ConfigView(
            path=str(config.path), drop_ins=config.drop_ins(), values=config.values_in_force()
        )

    def events(self) -> list[Event]:
        return [_wire_event(event) for event in self._daemon.journal.ring.since()]

    async def follow_events(self) -> AsyncIterator[Event]:
        with self._daemon.journal.ring.subscribe() as subscription:
            async for event in subscription:
                yield _wire_event(event)

    async def follow_status(self) -> AsyncIterator[Status]:
        changed = asyncio.Event()
        self._changed.add(changed)
        try:
            while True:
                yield self.status()
                await asyncio.sleep(FOLLOW_INTERVAL_S)
                await changed.wait()
                changed.clear()
        finally:
            self._changed.discard(changed)

    def metrics(self) -> bytes:
        return self._daemon.render_metrics()

    # -------------------------------------------------------------- writes

    async def reload(self) -> Accepted:
        self._refuse_at_the_end("reload")
        daemon = self._daemon
        before = daemon.config.generation
        await daemon.reload()
        daemon.scanner.look_again()
        if daemon.config.problems:
            raise SpecInvalid(
                "the files in force are kept: the new ones have problems",
                problems=daemon.config.problems,
            )
        return self._accepted(before)

    async def patch_settings(self, patch: SettingsPatch) -> Accepted:
        self._refuse_at_the_end("change settings")
        daemon = self._daemon
        before = daemon.config.generation
        model = self._entry(patch.model).id
        await daemon.edit(lambda: daemon.config.patch(model, patch.set, patch.unset))
        return self._accepted(before)

    async def load(self, model: str) -> Accepted:
        self._refuse_at_the_end(f"load {model}")
        entry = self._entry(model)
        if not entry.servable:
            raise ModelUnavailable(f"{entry.id} cannot be loaded: {entry.reason}")
        self._daemon.controller.load(entry.id)
        return self._accepted(self._daemon.config.generation)

    async def unload(self, model: str) -> Accepted:
        entry = self._entry(model)
        if entry.spec.pin:
            where = self._daemon.config.pinned_by().get(entry.id, "a file")
            raise Conflict(
                f"{entry.id} is pinned in {where}, so it stays loaded; "
                f"unpin it there, or with: omlxctl unpin {entry.id}"
            )
        self._daemon.controller.unload(entry.id)
        return self._accepted(self._daemon.config.generation)

    async def plan(self, text: str, file: str) -> PlanResult:
        return self._daemon.dry_run(text, file)

    def _refuse_at_the_end(self, what: str) -> None:
        if self._daemon.is_stopping:
            raise Conflict(f"omlxd is stopping; {what} when it runs again")

    def _accepted(self, before: int) -> Accepted:
        generation = self._daemon.config.generation
        return Accepted(generation=generation, changed=generation != before)

    def _entry(self, name: str) -> Entry:
        return self._daemon.catalog[self._daemon.resolve_id(name)]


def _wire_event(event: ring.Event) -> Event:
    return Event(
        seq=event.seq,
        time=event.time,
        type=event.type,
        reason=event.reason,
        message=event.message,
        model=event.model,
    )
