"""What a worker reports of itself between events: rows, memory, its part of the tiered cache."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class RowStats(Struct, frozen=True):
    """Where one request stands, for `omlxctl requests`."""

    request_id: str
    status: Literal["waiting", "restoring", "prefill", "decode"]
    prompt_tokens: int
    computed_tokens: int
    output_tokens: int


class Stats(Struct, frozen=True, tag=True, kw_only=True):
    """About once a second while anything runs, and once when it comes to rest."""

    running: int
    waiting: int
    active_bytes: int  # MLX's allocator: in use
    cache_bytes: int  # MLX's allocator: kept for reuse
    prefill_tps: float = 0.0
    decode_tps: float = 0.0
    rows: list[RowStats] = []


class CacheReport(Struct, frozen=True, tag=True, kw_only=True):
    """The engine's part of the tiered cache, at most once a second; counters since its start."""

    namespace: str  # hex; name of the model's folder in the cold tier
    hot_bytes: int = 0
    hot_limit_bytes: int = 0
    hot_entries: int = 0
    cold_entries: int = 0  # known to this worker
    cold_bytes: int = 0
    queued_bytes: int = 0  # waiting to be written
    written_bytes: int = 0
    read_bytes: int = 0
    tokens: dict[str, int] = {}  # prompt tokens by source: ram, ssd, computed
    counts: dict[str, int] = {}  # what happened, by reason
    store_s: float = 0.0  # time of the engine that storing took
    degraded: str = ""  # why the cold tier is not used though it may be


class CacheEvicted(Struct, frozen=True, tag=True):
    """Blocks that were dropped since the last report."""

    tier: Literal["hot", "cold"]
    blocks: int
    bytes: int
    reason: str


class CacheDone(Struct, frozen=True, tag=True):
    command_id: int
    entries: int
    bytes: int
