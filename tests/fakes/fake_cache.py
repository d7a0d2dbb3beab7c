"""A `CacheControl` that answers what a test gives it, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

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
from omlxd.errors import ModelNotFound, NotFound, OmlxError

TIME = "2026-01-02T03:04:05.000Z"
GIB = 2**30


def an_engine(**fields: Any) -> EngineCache:
    given: dict[str, Any] = {
        "model": "Beta",
        "namespace": "ab" * 32,
        "hot_bytes": GIB,
        "hot_limit_bytes": 4 * GIB,
        "hot_entries": 100,
        "cold_entries": 200,
        "cold_bytes": 3 * GIB,
        "queued_bytes": 0,
        "written_bytes": GIB,
        "read_bytes": 0,
        "tokens": {"ram": 750, "ssd": 200, "computed": 50},
        "counts": {"hits": 7, "evicted: budget": 3, "lost: queue": 0},
        "store_s": 1234.56,
        "cold": True,
    }
    return EngineCache(**(given | fields))


def stats(*engines: EngineCache, **fields: Any) -> CacheStats:
    given: dict[str, Any] = {
        "hot_bytes": GIB,
        "hot_limit_bytes": 6 * GIB,
        "cold_bytes": 12 * GIB,
        "cold_limit_bytes": 100 * GIB,
        "cold_min_free_bytes": 10 * GIB,
        "cold_written_bytes": GIB,
        "disk_free_bytes": 50 * GIB,
        "dir": "/home/you/.omlx/cache",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "engines": list(engines),
    }
    return CacheStats(**(given | fields))


def a_namespace(**fields: Any) -> NamespaceEntries:
    given: dict[str, Any] = {
        "namespace": "ab" * 32,
        "model": "Beta",
        "in_use": True,
        "entries": 200,
        "bytes": 3 * GIB,
        "newest": TIME,
        "oldest": TIME,
    }
    return NamespaceEntries(**(given | fields))


def a_match(**fields: Any) -> PrefixMatch:
    given: dict[str, Any] = {
        "ram": 0,
        "ssd": 0,
        "donor": "",
        "diverged_at": None,
        "message_index": None,
        "excerpt": "",
        "why_not_more": "",
        "cold_skipped": "",
    }
    return PrefixMatch(**(given | fields))


def a_why(**fields: Any) -> RequestWhy:
    given: dict[str, Any] = {
        "request_id": "req_1",
        "model": "Beta",
        "api": "chat.completions",
        "ended_at": TIME,
        "status": 200,
        "finish_reason": "stop",
        "error": "",
        "prompt_tokens": 1000,
        "cached_tokens": 0,
        "computed_tokens": 1000,
        "output_tokens": 20,
        "queue_ms": 1.0,
        "ttft_ms": 2000.0,
        "latency_ms": 3000.0,
        "prefix_reuse": True,
        "prefix_reuse_reason": "",
        "match": a_match(),
    }
    return RequestWhy(**(given | fields))


class FakeCache:
    """`refusal`, if set, is raised by everything that writes."""

    def __init__(self) -> None:
        self.current = stats(an_engine())
        self.found = CacheEntries(dir="/home/you/.omlx/cache", namespaces=[a_namespace()])
        self.progress = [
            VerifyProgress(total=2, checked=2, bytes=GIB, bad={}, removed=0, done=True)
        ]
        self.whys = {"req_1": a_why()}
        self.failed: dict[str, str] = {}
        self.asked: list[str] = []  # "clear Beta", "gc", …
        self.refusal: OmlxError | None = None

    def stats(self) -> CacheStats:
        return self.current

    def why(self, request_id: str) -> RequestWhy:
        if request_id not in self.whys:
            raise NotFound(f"no request {request_id!r} among the last 500")
        return self.whys[request_id]

    async def entries(self) -> CacheEntries:
        return self.found

    def verify(self, model: str) -> AsyncIterator[VerifyProgress]:
        self._ask("verify", model)
        return self._progress()

    async def _progress(self) -> AsyncIterator[VerifyProgress]:
        for one in self.progress:
            yield one

    async def collect(self) -> CacheCollected:
        self._ask("gc", "")
        return CacheCollected(
            entries=9,
            bytes=GIB,
            evicted_entries=1,
            evicted_bytes=2**20,
            temporary_files=2,
            empty_namespaces=3,
        )

    async def clear(self, model: str) -> CacheCleared:
        self._ask("clear", model)
        return CacheCleared(
            hot_entries=5, hot_bytes=GIB, cold_entries=6, cold_bytes=2 * GIB, failed=self.failed
        )

    def _ask(self, what: str, model: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        if model not in ("", "Beta"):
            raise ModelNotFound(f"no model named {model!r}")
        self.asked.append(f"{what} {model}".strip())
