"""The daemon's log lines: which to show, how they read, what they add up to. Pure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click

from omlxctl.render import table
from omlxctl.text import safe

Record = Mapping[str, Any]
_HEAD = ("time", "level", "type")  # fields every line has
_COLORS = {"warning": "yellow", "error": "red", "critical": "red"}
FIGURES = ("ttft_ms", "latency_ms", "output_tps")
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """None = any."""

    type: str | None = None
    model: str | None = None
    since: datetime | None = None

    def takes(self, record: Record) -> bool:
        if self.type is not None and record.get("type") != self.type:
            return False
        if self.model is not None and record.get("model") != self.model:
            return False
        if self.since is None:
            return True
        time = _time(record)
        return time is not None and time >= self.since


def parse(line: str) -> Record | None:
    """None for what is not a JSON object, such as half a line."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def pretty(record: Record) -> str:
    """time LEVEL type, then the fields as key=value."""
    time, level, kind = (safe(str(record.get(name, "-"))) for name in _HEAD)
    shown = level.upper().ljust(7)
    shown = click.style(shown, _COLORS[level]) if level in _COLORS else shown
    fields = " ".join(f"{safe(k)}={_short(v)}" for k, v in record.items() if k not in _HEAD)
    return f"{time}  {shown}  {kind:<14}  {fields}".rstrip()


@dataclass(slots=True)
class Stats:
    """Request lines added up. Tokens are counts; times are milliseconds."""

    requests: int = 0
    errors: int = 0  # status 400 and above
    hits: int = 0  # requests with cached tokens
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    figures: dict[str, list[float]] = field(default_factory=lambda: {f: [] for f in FIGURES})

    def add(self, record: Record) -> None:
        self.requests += 1
        self.errors += _number(record, "status") >= 400
        self.hits += bool(record.get("cache_hit"))
        self.prompt_tokens += int(_number(record, "prompt_tokens"))
        self.cached_tokens += int(_number(record, "cached_tokens"))
        self.output_tokens += int(_number(record, "output_tokens"))
        for name, values in self.figures.items():
            if isinstance(record.get(name), int | float):
                values.append(float(record[name]))

    def summary(self) -> dict[str, Any]:
        """JSON: counts, rates 0..1 (null without a request), percentiles by figure."""
        return {
            "requests": self.requests,
            "errors": self.errors,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "hit_rate": _rate(self.hits, self.requests),
            "cached_token_rate": _rate(self.cached_tokens, self.prompt_tokens),
            **{name: percentiles(values) for name, values in self.figures.items()},
        }


def add_up(records: Iterable[Record]) -> dict[str, Stats]:
    """By model, in order of name, request lines only."""
    by_model: dict[str, Stats] = {}
    for record in records:
        if record.get("type") == "request":
            by_model.setdefault(str(record.get("model", "")), Stats()).add(record)
    return dict(sorted(by_model.items()))


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    """p50, p90 and p99, interpolated; None without values."""
    if not values:
        return None
    cuts = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else None
    return {f"p{p}": round(cuts[p - 1] if cuts else values[0], 3) for p in PERCENTILES}


def stats_lines(by_model: Mapping[str, Stats]) -> list[str]:
    """One row a model; times and rates as p50/p90/p99."""
    if not by_model:
        return ["no requests"]
    figures = (f"{name} P50/P90/P99" for name in ("TTFT_MS", "LATENCY_MS", "TPS"))
    header = ("MODEL", "REQUESTS", "ERRORS", "HIT", "CACHED", *figures)
    rows = []
    for model, stats in by_model.items():
        summary = stats.summary()
        counts = (str(stats.requests), str(stats.errors))
        rates = (_percent(summary["hit_rate"]), _percent(summary["cached_token_rate"]))
        rows.append((model, *counts, *rates, *(_slashed(summary[name]) for name in FIGURES)))
    return table(header, rows)


def _time(record: Record) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(record.get("time")))
    except ValueError:
        return None
    return time if time.tzinfo else None


def _short(value: Any) -> str:
    if isinstance(value, str) and value.isprintable() and value and not set(value) & set(' "='):
        return value
    return safe(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _number(record: Record, name: str) -> float:
    value = record.get(name)
    return value if isinstance(value, int | float) else 0


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _percent(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.0%}"


def _slashed(values: Mapping[str, float] | None) -> str:
    return "" if values is None else "/".join(f"{value:.0f}" for value in values.values())
