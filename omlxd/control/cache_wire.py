"""JSON shapes of the prefix cache on the control socket, shared with omlxctl. Additive only."""

from __future__ import annotations

from msgspec import Struct

from omlxd.control.wire import API_VERSION


class EngineCache(Struct, frozen=True, kw_only=True):
    """One loaded engine's part. Counters are of its present worker."""

    model: str
    namespace: str  # hex; name of its folder on disk
    hot_bytes: int
    hot_limit_bytes: int
    hot_entries: int
    cold_entries: int
    cold_bytes: int
    queued_bytes: int  # waiting to be written
    written_bytes: int
    read_bytes: int
    tokens: dict[str, int]  # prompt tokens by source: ram, ssd, computed
    counts: dict[str, int]  # what happened, by reason
    store_s: float = 0.0  # time of the engine that storing blocks took
    cold: bool  # it may use the cold tier
    degraded: str = ""  # why it does not, though it may


class CacheStats(Struct, frozen=True, kw_only=True):
    """Answer of GET /v1/cache."""

    api_version: int = API_VERSION
    hot_bytes: int
    hot_limit_bytes: int  # of all engines together; below cache.hot while memory is short
    cold_bytes: int  # on disk
    cold_limit_bytes: int  # 0 = the tier is off
    cold_min_free_bytes: int
    cold_written_bytes: int  # since the daemon started
    disk_free_bytes: int
    dir: str  # folder that is asked for
    status: str  # of condition ColdTier
    reason: str
    message: str
    engines: list[EngineCache]


class NamespaceEntries(Struct, frozen=True, kw_only=True):
    """What the disk holds of one model, as it was when its files were these."""

    namespace: str
    model: str  # "" = not known
    in_use: bool  # by an engine that is loaded
    entries: int
    bytes: int
    newest: str  # last use; RFC 3339, UTC
    oldest: str


class CacheEntries(Struct, frozen=True, kw_only=True):
    """Answer of GET /v1/cache/entries, the most recently used first."""

    api_version: int = API_VERSION
    dir: str
    namespaces: list[NamespaceEntries]


class CacheTarget(Struct, frozen=True):
    """Body of POST /v1/cache/verify and /v1/cache/clear."""

    model: str = ""  # "" = everything


class VerifyProgress(Struct, frozen=True, kw_only=True):
    """One line of the answer of POST /v1/cache/verify; the last one has `done`."""

    total: int  # entries
    checked: int
    bytes: int
    bad: dict[str, int]  # by reason
    removed: int
    done: bool = False


class CacheCollected(Struct, frozen=True, kw_only=True):
    """Answer of POST /v1/cache/gc."""

    entries: int  # that are left
    bytes: int
    evicted_entries: int
    evicted_bytes: int
    temporary_files: int  # that were removed
    empty_namespaces: int


class CacheCleared(Struct, frozen=True, kw_only=True):
    """Answer of POST /v1/cache/clear."""

    hot_entries: int
    hot_bytes: int
    cold_entries: int
    cold_bytes: int
    failed: dict[str, str]  # engine → why its memory was not cleared


class PrefixMatch(Struct, frozen=True, kw_only=True):
    """What of a prompt was found in the prefix cache, and why not more."""

    ram: int
    ssd: int
    donor: str  # request that stored the deepest block that was used
    diverged_at: int | None  # token of the first difference to the nearest prefix
    message_index: int | None  # message that holds it
    excerpt: str
    why_not_more: str
    cold_skipped: str


class RequestWhy(Struct, frozen=True, kw_only=True):
    """Answer of GET /v1/requests/{id}/why: one of the last requests."""

    api_version: int = API_VERSION
    request_id: str
    model: str
    api: str
    ended_at: str  # RFC 3339, UTC; "" = it has not ended
    status: int
    finish_reason: str
    error: str
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    output_tokens: int
    queue_ms: float
    ttft_ms: float | None
    latency_ms: float
    prefix_reuse: bool | None  # whether the model can reuse prefixes; None = it is not loaded now
    prefix_reuse_reason: str
    match: PrefixMatch | None  # None = the request did not get as far
