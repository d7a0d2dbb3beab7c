"""The prefix cache as people read it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from omlxctl.render import table
from omlxctl.text import safe
from omlxd.control.cache_wire import (
    CacheCleared,
    CacheCollected,
    CacheEntries,
    CacheStats,
    EngineCache,
    VerifyProgress,
)
from omlxd.units import format_size

SHORT = 12  # digits of a namespace that are enough for people


def stats_lines(stats: CacheStats) -> list[str]:
    """Both tiers, one row an engine, and what happened by reason."""
    lines = [f"hot   {format_size(stats.hot_bytes)} of {format_size(stats.hot_limit_bytes)} RAM"]
    if stats.cold_limit_bytes:
        lines.append(
            f"cold  {format_size(stats.cold_bytes)} of {format_size(stats.cold_limit_bytes)} "
            f"in {stats.dir}; {format_size(stats.disk_free_bytes)} free on its disk, "
            f"{format_size(stats.cold_written_bytes)} written since omlxd started"
        )
    if stats.status != "True":
        lines.append(f"      not in use: {stats.reason}: {stats.message}")
    if stats.engines:
        lines += ["", *_engine_rows(stats)]
    for engine in stats.engines:
        lines += _trouble(engine)
        lines += [f"{engine.model}: {count} {reason}" for reason, count in _counts(engine.counts)]
        if engine.store_s:
            lines.append(f"{engine.model}: storing took {engine.store_s:,.1f} s of its time")
    return [safe(line) for line in lines]


def _engine_rows(stats: CacheStats) -> list[str]:
    header = ("MODEL", "HOT", "LIMIT", "ON DISK", "QUEUED", "RAM", "SSD", "COMPUTED")
    rows = []
    for engine in stats.engines:
        total = sum(engine.tokens.values())
        sizes = (engine.hot_bytes, engine.hot_limit_bytes, engine.cold_bytes, engine.queued_bytes)
        parts = (
            _part(engine.tokens.get(source, 0), total) for source in ("ram", "ssd", "computed")
        )
        rows.append((engine.model, *map(format_size, sizes), *parts))
    return table(header, rows)


def _part(tokens: int, total: int) -> str:
    return f"{tokens / total:.0%}" if total else ""


def _trouble(engine: EngineCache) -> list[str]:
    return [f"{engine.model}: disk not used: {engine.degraded}"] if engine.degraded else []


def _counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted((reason, count) for reason, count in counts.items() if count)


def entries_lines(entries: CacheEntries) -> list[str]:
    if not entries.namespaces:
        return [f"nothing in {safe(entries.dir)}"]
    rows = [
        (
            one.namespace[:SHORT],
            one.model or "(not known)",
            "yes" if one.in_use else "no",
            str(one.entries),
            format_size(one.bytes),
            one.newest,
            one.oldest,
        )
        for one in entries.namespaces
    ]
    return table(("NAMESPACE", "MODEL", "LOADED", "ENTRIES", "SIZE", "NEWEST", "OLDEST"), rows)


def progress_line(progress: VerifyProgress) -> str:
    part = progress.checked / progress.total if progress.total else 1.0
    return f"{progress.checked} of {progress.total} entries ({part:.0%})"


def verified_lines(progress: VerifyProgress) -> list[str]:
    lines = [f"{progress.checked} entries, {format_size(progress.bytes)}: "]
    if not progress.bad:
        return [lines[0] + "all are what was written"]
    found = [f"{count} {reason}" for reason, count in sorted(progress.bad.items())]
    return [f"{lines[0]}{', '.join(found)}; {progress.removed} removed"]


def collected_lines(gc: CacheCollected) -> list[str]:
    return [
        f"evicted {gc.evicted_entries} entries ({format_size(gc.evicted_bytes)}), removed "
        f"{gc.temporary_files} temporary files and {gc.empty_namespaces} empty namespaces",
        f"{gc.entries} entries ({format_size(gc.bytes)}) are left",
    ]


def cleared_lines(cleared: CacheCleared) -> list[str]:
    lines = [
        f"cleared {cleared.hot_entries} entries ({format_size(cleared.hot_bytes)}) in memory and "
        f"{cleared.cold_entries} ({format_size(cleared.cold_bytes)}) on disk"
    ]
    return lines + [
        safe(f"{model}: memory not cleared: {why}") for model, why in cleared.failed.items()
    ]
