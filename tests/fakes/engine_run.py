"""An engine that does nothing by itself: the test says when weights are in and what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from omlxd.ipc.messages import CacheCommand, LiveSettings, LoadSettings
from omlxd.worker.ports import EngineFacts, EngineListener, RowJob

FACTS = EngineFacts(weights_bytes=1000, batches=True, kv_bytes_per_token=8)


@dataclass
class FakeEngine:
    """Implements `ports.EngineRun`; keeps what it was told."""

    facts: Future[EngineFacts] = field(default_factory=Future)
    ended: Future[None] = field(default_factory=Future)
    submitted: list[Sequence[RowJob]] = field(default_factory=list)
    cancelled: list[tuple[str, int | None]] = field(default_factory=list)
    live: LiveSettings | None = None
    commands: list[CacheCommand] = field(default_factory=list)
    is_stopped: bool = False

    def submit(self, rows: Sequence[RowJob]) -> None:
        self.submitted.append(rows)

    def cancel(self, request_id: str, index: int | None = None) -> None:
        self.cancelled.append((request_id, index))

    def configure(self, live: LiveSettings) -> None:
        self.live = live

    def command_cache(self, command: CacheCommand) -> None:
        self.commands.append(command)

    def stop(self) -> None:
        self.is_stopped = True


class FakeEngineFactory:
    """Gives out one `engine`; `listener` is the one it was made with."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.listener: EngineListener | None = None

    def __call__(
        self, load: LoadSettings, live: LiveSettings, listener: EngineListener
    ) -> FakeEngine:
        self.listener = listener
        return self.engine
