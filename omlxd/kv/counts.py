"""What the cache did, counted by reason since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from omlxd.kv.types import EntryKind


@dataclass(slots=True, kw_only=True)
class CacheCounts:
    """`hot_*`, `cold_*`, `pinned_*` and `*_bytes` are as things stand; the rest only grow."""

    hot_bytes: int = 0
    hot_budget_bytes: int = 0
    pinned_bytes: int = 0
    protected_bytes: int = 0
    hot_entries: Counter[EntryKind] = field(default_factory=Counter)
    cold_entries: int = 0  # known on disk
    cold_bytes: int = 0
    dirty_entries: int = 0
    dirty_bytes: int = 0
    writing_bytes: int = 0
    loading_bytes: int = 0

    hits: int = 0
    misses: Counter[str] = field(default_factory=Counter)  # by `why_not_more`
    ram_tokens: int = 0
    ssd_tokens: int = 0
    stored: Counter[EntryKind] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    evicted: Counter[str] = field(default_factory=Counter)  # entries, by reason
    written: int = 0
    write_retries: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)  # never reached the disk, by reason
    loaded: int = 0
    load_failures: Counter[str] = field(default_factory=Counter)
