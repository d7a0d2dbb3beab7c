"""What the prefix cache tells the daemon: at most once a second, and when it comes to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from omlxd.ipc.messages import CacheReport
from omlxd.kv.counts import CacheCounts
from omlxd.worker.ports import CacheFrame
from omlxd.worker.prefix_cold import ColdShelf
from omlxd.worker.prefix_hot import HotPieces

INTERVAL_S = 1.0


class Reporter:
    def __init__(
        self,
        namespace: str,
        *,
        hot: HotPieces,
        cold: ColdShelf,
        send: Callable[[CacheFrame], None],
    ) -> None:
        self.store_s = 0.0  # seconds that storing has taken
        self._namespace = namespace
        self._hot, self._cold, self._send = hot, cold, send
        self._failures: Counter[str] = Counter()
        self._computed = 0
        self._told: int | None = None  # changes
        self._told_at = 0.0

    def count_failure(self, what: str) -> int:
        self._failures[what] += 1
        self._hot.changes += 1
        return self._failures[what]

    def count_computed(self, tokens: int) -> None:
        """Prompt tokens that had to be run."""
        self._computed += tokens

    def report(self, now: float) -> float | None:
        """Seconds until the next one is due; None if there is nothing new."""
        changes = self._hot.changes + self._cold.changes
        if changes == self._told:
            return None
        left = self._told_at + INTERVAL_S - now if self._told is not None else 0.0
        if left > 0:
            return left
        self._told, self._told_at = changes, now
        for evicted in self._hot.take_evicted():
            self._send(evicted)
        self._send(self._report(self._hot.core.stats()))
        return None

    def _report(self, counts: CacheCounts) -> CacheReport:
        return CacheReport(
            namespace=self._namespace,
            hot_bytes=counts.hot_bytes,
            hot_limit_bytes=counts.hot_budget_bytes,
            hot_entries=counts.hot_entries.total(),
            cold_entries=counts.cold_entries,
            cold_bytes=counts.cold_bytes,
            queued_bytes=counts.dirty_bytes + counts.writing_bytes,
            written_bytes=self._cold.written_bytes,
            read_bytes=self._cold.read_bytes,
            tokens={
                "ram": counts.ram_tokens,
                "ssd": counts.ssd_tokens,
                "computed": self._computed,
            },
            counts=_flat(counts)
            | {f"{what} failed": count for what, count in self._failures.items()},
            store_s=round(self.store_s, 6),
            degraded=self._cold.degraded,
        )


def _flat(counts: CacheCounts) -> dict[str, int]:
    """By reason, each under the name of what it is a reason of."""
    tables: dict[str, Mapping[str, int]] = {
        "missed": counts.misses,
        "stored": {str(kind): count for kind, count in counts.stored.items()},
        "refused": counts.refused,
        "evicted": counts.evicted,
        "write retried": counts.write_retries,
        "lost": counts.lost,
        "load failed": counts.load_failures,
    }
    flat = {
        f"{name}: {reason}": count
        for name, table in tables.items()
        for reason, count in table.items()
    }
    return flat | {"hits": counts.hits, "written": counts.written, "loaded": counts.loaded}
