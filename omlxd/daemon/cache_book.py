"""What the workers say of their part of the tiered cache, and what they are told to do with it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from omlxd.daemon.gateway import WorkerLink
from omlxd.daemon.journal import Journal
from omlxd.errors import WorkerDied
from omlxd.ipc.messages import CacheCommand, CacheDone, CacheEvicted, CacheOp, CacheReport
from omlxd.reconcile.state import ModelId

CacheMessage = CacheReport | CacheEvicted | CacheDone


class CacheBook:
    """Owns the latest report of every worker, and the commands that are not answered yet."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.reports: dict[ModelId, CacheReport] = {}
        self.written_bytes = 0  # to the cold tier, by all workers there have been
        self.on_written: Callable[[], None] = _nobody  # wired by the daemon
        self._command_ids = itertools.count(1)
        self._asked: dict[int, tuple[ModelId, asyncio.Future[CacheDone]]] = {}

    def heard(self, model: ModelId, message: CacheMessage) -> None:
        match message:
            case CacheReport():
                self._reported(model, message)
            case CacheEvicted():
                self._journal.cache_evicted(
                    tier=message.tier,
                    blocks=message.blocks,
                    bytes=message.bytes,
                    reason=message.reason,
                    model=model,
                )
            case CacheDone():
                asked = self._asked.pop(message.command_id, None)
                if asked is not None and not asked[1].done():
                    asked[1].set_result(message)

    def _reported(self, model: ModelId, report: CacheReport) -> None:
        before = self.reports.get(model)
        self.reports[model] = report
        written = report.written_bytes - (before.written_bytes if before else 0)
        if written > 0:
            self.written_bytes += written
            self.on_written()
        degraded = before.degraded if before else ""
        if report.degraded and report.degraded != degraded:
            self._journal.cold_tier_lost("Degraded", report.degraded, model=model)

    def gone(self, model: ModelId) -> None:
        """Its worker ended."""
        self.reports.pop(model, None)
        for command_id, (asked, future) in list(self._asked.items()):
            if asked == model:
                del self._asked[command_id]
                if not future.done():
                    future.set_exception(WorkerDied(f"the process of {model} ended meanwhile"))

    async def ask(self, model: ModelId, worker: WorkerLink, op: CacheOp) -> CacheDone:
        """Have a worker carry out `op`; raises WorkerDied."""
        command_id = next(self._command_ids)
        future: asyncio.Future[CacheDone] = asyncio.get_running_loop().create_future()
        self._asked[command_id] = (model, future)
        try:
            worker.send(CacheCommand(command_id, op))
            return await future
        finally:
            self._asked.pop(command_id, None)

    def prompt_tokens(self, model: ModelId) -> int:
        """That its worker has looked up so far."""
        report = self.reports.get(model)
        return sum(report.tokens.values()) if report else 0

    @property
    def degraded(self) -> dict[ModelId, str]:
        """Engines that do not use the cold tier though they may, and why."""
        return {model: r.degraded for model, r in self.reports.items() if r.degraded}

    @property
    def namespaces(self) -> dict[str, ModelId]:
        """Of the engines that have a worker."""
        return {report.namespace: model for model, report in self.reports.items()}

    @property
    def hot_bytes(self) -> int:
        return sum(report.hot_bytes for report in self.reports.values())


def _nobody() -> None:
    """Until somebody listens."""
