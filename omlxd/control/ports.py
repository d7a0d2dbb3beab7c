"""What the control socket needs of the daemon; the controller implements it, tests fake it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from omlxd.control.cache_wire import (
    CacheCleared,
    CacheCollected,
    CacheEntries,
    CacheStats,
    RequestWhy,
    VerifyProgress,
)
from omlxd.control.wire import (
    Accepted,
    ConfigView,
    Event,
    PlanResult,
    RequestStatus,
    SettingsPatch,
    Status,
)


class CacheControl(Protocol):
    """The prefix cache. A `model` is a name as clients may use it; "" means everything."""

    def stats(self) -> CacheStats: ...

    def why(self, request_id: str) -> RequestWhy:
        """What the cache did for one of the last requests; raises NotFound."""
        ...

    async def entries(self) -> CacheEntries:
        """What is on disk, counted now. Raises ModelUnavailable without a cold tier."""
        ...

    def verify(self, model: str) -> AsyncIterator[VerifyProgress]:
        """Read every entry on disk and remove bad ones; the last progress is the result."""
        ...

    async def collect(self) -> CacheCollected:
        """Count, evict what is too much and remove leftovers, now."""
        ...

    async def clear(self, model: str) -> CacheCleared:
        """Forget everything, in memory and on disk."""
        ...


class Control(Protocol):
    """Reads answer from the last published state; writes go through the one writer.

    Writes raise OmlxError (ModelNotFound, Conflict, SpecInvalid …).
    """

    @property
    def cache(self) -> CacheControl: ...

    def status(self) -> Status: ...

    def requests(self) -> list[RequestStatus]: ...

    def config_view(self) -> ConfigView: ...

    def events(self) -> list[Event]:
        """The ring of past events, oldest first."""
        ...

    def follow_events(self) -> AsyncIterator[Event]:
        """Events from now on."""
        ...

    def follow_status(self) -> AsyncIterator[Status]:
        """A full snapshot now and after every change of it (coalesced, at most 10 a second)."""
        ...

    def metrics(self) -> bytes:
        """Prometheus text format."""
        ...

    async def reload(self) -> Accepted: ...

    async def patch_settings(self, patch: SettingsPatch) -> Accepted: ...

    async def load(self, model: str) -> Accepted: ...

    async def unload(self, model: str) -> Accepted: ...

    async def plan(self, text: str, file: str) -> PlanResult:
        """What saving `text` as omlx.toml would change. Nothing is written."""
        ...
