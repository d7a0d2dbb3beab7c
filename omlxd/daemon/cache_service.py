"""The prefix cache for the control socket: implements `omlxd.control.ports.CacheControl`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from omlxd.api.ports import RequestRecord
from omlxd.control.cache_wire import (
    CacheCleared,
    CacheCollected,
    CacheEntries,
    CacheStats,
    EngineCache,
    NamespaceEntries,
    PrefixMatch,
    RequestWhy,
    VerifyProgress,
)
from omlxd.daemon.cold_verify import Verifier
from omlxd.daemon.conditions import cold_tier
from omlxd.daemon.janitor import Evicted, NamespaceCount, clear, take_census
from omlxd.daemon.status import rfc3339
from omlxd.errors import ModelUnavailable, OmlxError, WorkerDied
from omlxd.ipc.messages import CacheDone, CacheReport
from omlxd.reconcile.state import ModelId

if TYPE_CHECKING:
    from omlxd.daemon.daemon import Daemon

CLEAR_TIMEOUT_S = 20.0  # for a worker in the middle of a step


class CacheService:
    """Reads answer from what is; what touches the folder runs off the event loop."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    # -------------------------------------------------------------- reads

    def stats(self) -> CacheStats:
        controller, cold = self._daemon.controller, self._daemon.cold
        condition = cold_tier(cold.view, controller.cache.degraded)
        settings = cold.settings
        reports = sorted(controller.cache.reports.items())
        hot_limit, hot_room = controller.desired.hot_bytes, controller.grants.pressure.room_bytes
        return CacheStats(
            hot_bytes=controller.cache.hot_bytes,
            hot_limit_bytes=hot_limit if hot_room is None else min(hot_limit, hot_room),
            cold_bytes=cold.held_bytes,
            cold_limit_bytes=settings.budget_bytes if settings else 0,
            cold_min_free_bytes=settings.min_free_bytes if settings else 0,
            cold_written_bytes=controller.cache.written_bytes,
            disk_free_bytes=cold.view.free_bytes,
            dir=str(settings.path) if settings else "",
            status=condition.status,
            reason=condition.reason,
            message=condition.message,
            engines=[
                _engine(model, report, cold=controller.grants.of(model).cold)
                for model, report in reports
            ],
        )

    async def entries(self) -> CacheEntries:
        folder = self._folder()
        census = await asyncio.to_thread(take_census, folder, is_stale=lambda name, mtime: False)
        in_use = self._daemon.controller.cache.namespaces
        found = [
            _namespace(name, count, self._daemon.names.model_of.get(name, ""), name in in_use)
            for name, count in census.namespaces.items()
        ]
        found.sort(key=lambda one: one.newest, reverse=True)
        return CacheEntries(dir=str(folder), namespaces=found)

    def why(self, request_id: str) -> RequestWhy:
        found_id, past = self._daemon.gateway.recent.find(request_id)
        record = past.record or RequestRecord(request_id=found_id, api="")
        facts = self._daemon.controller.facts.get(record.model)
        return RequestWhy(
            request_id=found_id,
            model=record.model,
            api=record.api,
            ended_at=rfc3339(past.ended_at) if past.record else "",
            status=record.status,
            finish_reason=record.finish_reason,
            error=record.error,
            prompt_tokens=record.prompt_tokens,
            cached_tokens=record.cached_tokens,
            computed_tokens=record.cache["computed"],
            output_tokens=record.output_tokens,
            queue_ms=round(record.queue_ms, 1),
            ttft_ms=None if record.ttft_ms is None else round(record.ttft_ms, 1),
            latency_ms=round(record.latency_ms, 1),
            prefix_reuse=facts.prefix_reuse if facts else None,
            prefix_reuse_reason=facts.prefix_reuse_reason if facts else "",
            match=PrefixMatch(**msgspec.structs.asdict(past.match)) if past.match else None,
        )

    # -------------------------------------------------------------- commands

    def verify(self, model: str) -> AsyncIterator[VerifyProgress]:
        return self._verify(self._folder(), self._namespaces(model))

    async def _verify(
        self, folder: Path, only: frozenset[str] | None
    ) -> AsyncIterator[VerifyProgress]:
        """Reads half of the time: what serves requests needs the disk too."""
        census = await asyncio.to_thread(take_census, folder, is_stale=lambda name, mtime: False)
        chosen = [c for name, c in census.namespaces.items() if only is None or name in only]
        total = sum(count.entries for count in chosen)
        verifier = Verifier(folder, only=only)
        clock = asyncio.get_running_loop().time
        is_more = True
        while is_more:
            began = clock()
            is_more = await asyncio.to_thread(verifier.go_on)
            so_far = verifier.so_far
            yield VerifyProgress(
                total=max(total, so_far.checked),
                checked=so_far.checked,
                bytes=so_far.bytes,
                bad=dict(so_far.bad),
                removed=so_far.removed,
                done=not is_more,
            )
            if is_more:
                await asyncio.sleep(clock() - began)
        if verifier.so_far.removed:
            await self._daemon.cold.look(thorough=True)

    async def collect(self) -> CacheCollected:
        self._folder()
        view = await self._daemon.cold.look(thorough=True)
        tidied = view.tidied
        if tidied is None:
            raise ModelUnavailable(f"the cold tier was lost meanwhile: {view.message}")
        return CacheCollected(
            entries=tidied.entries,
            bytes=view.held_bytes,
            evicted_entries=tidied.evicted.blocks,
            evicted_bytes=tidied.evicted.bytes,
            temporary_files=tidied.stale,
            empty_namespaces=tidied.emptied,
        )

    async def clear(self, model: str) -> CacheCleared:
        """Workers first, so that what they forget is not written again; then the files."""
        only = self._namespaces(model)
        controller = self._daemon.controller
        asked = [self._daemon.resolve_id(model)] if model else list(controller.cache.reports)
        chosen = [one for one in asked if one in controller.cache.reports]
        answers = await asyncio.gather(*(self._clear_engine(one) for one in chosen))
        done = [answer for answer in answers if isinstance(answer, CacheDone)]
        cold = Evicted(0, 0)
        if self._daemon.cold.view.dir:
            folder = Path(self._daemon.cold.view.dir)
            cold = await asyncio.to_thread(clear, folder, only=only)
            if cold.blocks:
                self._daemon.journal.cache_evicted(
                    tier="cold", blocks=cold.blocks, bytes=cold.bytes, reason="cleared"
                )
            await self._daemon.cold.look(thorough=True)
        return CacheCleared(
            hot_entries=sum(answer.entries for answer in done),
            hot_bytes=sum(answer.bytes for answer in done),
            cold_entries=cold.blocks,
            cold_bytes=cold.bytes,
            failed={
                one: answer.message
                for one, answer in zip(chosen, answers, strict=True)
                if isinstance(answer, OmlxError)
            },
        )

    async def _clear_engine(self, model: ModelId) -> CacheDone | OmlxError:
        controller = self._daemon.controller
        worker = controller.fleet.worker_of(model)
        assert worker is not None, model  # it has reported, and its end would have been told
        try:
            async with asyncio.timeout(CLEAR_TIMEOUT_S):
                return await controller.cache.ask(model, worker, "clear")
        except TimeoutError:
            return ModelUnavailable(f"it did not answer within {CLEAR_TIMEOUT_S:g} s; try again")
        except WorkerDied as error:
            return error

    # -------------------------------------------------------------- parts

    def _folder(self) -> Path:
        view = self._daemon.cold.view
        if not view.dir:
            raise ModelUnavailable(f"there is no cold tier now ({view.reason}): {view.message}")
        return Path(view.dir)

    def _namespaces(self, model: str) -> frozenset[str] | None:
        """All there are of one model; None = of everything."""
        if not model:
            return None
        return self._daemon.names.of_model(self._daemon.resolve_id(model))


def _engine(model: ModelId, report: CacheReport, *, cold: bool) -> EngineCache:
    return EngineCache(model=model, cold=cold, **msgspec.structs.asdict(report))


def _namespace(name: str, count: NamespaceCount, model: str, in_use: bool) -> NamespaceEntries:
    return NamespaceEntries(
        namespace=name,
        model=model,
        in_use=in_use,
        entries=count.entries,
        bytes=count.bytes,
        newest=rfc3339(count.newest),
        oldest=rfc3339(count.oldest),
    )
