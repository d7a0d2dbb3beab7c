"""What a replay measured, and how that stands against the bars. Pure: no clock, no server.

A bar is a limit that a change must not push a figure over. Bars compare figures of one run, as
other work on the machine moves all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

OURS, PEER = "omlxd", "mlx_lm"
MB = 2**20

Kind = Literal["cold", "warm", "repeat", "next", "resumed"]
"""cold: nothing of the prompt is known but the template's start. warm: a conversation's next turn.
After a restart: repeat: the last request again; next: the turn after it; resumed: the next turn of
a conversation that was not asked for since."""

Unit = Literal["x", "MB"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request and its answer."""

    workload: str
    kind: Kind
    conversation: str
    turn: int
    ttft_s: float
    total_s: float
    prompt_tokens: int
    cached_tokens: int | None  # None = the server does not say
    output_tokens: int
    text: str


@dataclass(slots=True)
class Run:
    """One server's part: started, asked, perhaps stopped and started again."""

    server: str
    samples: list[Sample] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)  # spawn to first answer, of each start
    stop_s: list[float] = field(default_factory=list)
    memory_bytes: dict[str, int] = field(default_factory=dict)  # of the process tree, by when
    disk_bytes: int | None = None  # allocated, after the restart; None = not measured
    distinct_tokens: int = 0  # of all prompts and replies


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure of omlxd and its limit; no limit = only to be seen."""

    value: float
    unit: Unit
    limit: float | None = None

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        return "ok" if self.value <= self.limit else "over"

    def __str__(self) -> str:
        return f"{self.value:.2f}x" if self.unit == "x" else f"{self.value:+.0f} MB"

    @property
    def limit_text(self) -> str:
        if self.limit is None:
            return ""
        return f"≤ {self.limit:.2f}x" if self.unit == "x" else f"≤ {self.limit:+.0f} MB"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a cell for each server, and the bar if there is one to compare."""

    name: str
    cells: tuple[str, ...]
    bar: Bar | None = None


def distinct_tokens(sequences: Iterable[Sequence[int]]) -> int:
    """Tokens whose KV must be computed once: a start that an earlier sequence has is not new."""
    seen: list[Sequence[int]] = []
    count = 0
    for sequence in sequences:
        count += len(sequence) - max((_shared(sequence, old) for old in seen), default=0)
        seen.append(sequence)
    return count


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))


def kv_bytes_per_token(config: Mapping[str, Any], itemsize: int) -> int | None:
    """From a model's config.json; `itemsize` of the KV's dtype in bytes.

    None where the layers are not all plain attention: their KV has no one size per token.
    """
    text = config.get("text_config", config)
    layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
    sliding = text.get("sliding_window") and text.get("use_sliding_window", True)
    if not layers or not heads or text.get("kv_lora_rank") or sliding:
        return None
    if set(text.get("layer_types") or ["full_attention"]) != {"full_attention"}:
        return None
    head_dim = text.get("head_dim") or text["hidden_size"] // heads
    return int(2 * layers * (text.get("num_key_value_heads") or heads) * head_dim * itemsize)


def median_ttft(
    runs: Iterable[Run], kinds: Iterable[Kind], workloads: Iterable[str] = ()
) -> float | None:
    """Seconds over all runs; None without such a sample. No workload = all."""
    kinds, workloads = set(kinds), set(workloads)
    found = [
        sample.ttft_s
        for run in runs
        for sample in run.samples
        if sample.kind in kinds and (not workloads or sample.workload in workloads)
    ]
    return statistics.median(found) if found else None


def rows(runs: Sequence[Run], kv_bytes: int | None) -> list[Row]:
    """The table. `kv_bytes` per token, None if it is not known: then there is no bar for disk."""
    servers = list(dict.fromkeys(run.server for run in runs))
    by_server = {name: [run for run in runs if run.server == name] for name in servers}
    made = [*_against_peer(by_server), *_after_restart(by_server), *_memory(by_server)]
    if (row := _disk(by_server, kv_bytes)) is not None:
        made.append(row)
    return made


def _against_peer(by_server: Mapping[str, Sequence[Run]]) -> Iterable[Row]:
    wanted: tuple[tuple[str, Kind, tuple[str, ...], float | None], ...] = (
        ("first token, cold prompt", "cold", (), 1.05),
        ("first token, later turns of an agent", "warm", ("agent",), 1.05),
        ("first token, two conversations in turn", "warm", ("alternate",), None),
    )
    for name, kind, workloads, limit in wanted:
        medians = {s: median_ttft(runs, [kind], workloads) for s, runs in by_server.items()}
        ours, peer = medians.get(OURS), medians.get(PEER)
        bar = Bar(ours / peer, "x", limit) if ours and peer else None
        if any(medians.values()):
            yield Row(name, tuple(map(_ms, medians.values())), bar)


def _after_restart(by_server: Mapping[str, Sequence[Run]]) -> Iterable[Row]:
    """Ratios to omlxd's own warm turn of the same workload."""
    warm = median_ttft(by_server.get(OURS, ()), ["warm"], ["restart"])
    wanted: tuple[tuple[str, Kind, float | None], ...] = (
        ("first token, warm turn before the restart", "warm", None),
        ("first token, its next turn after the restart", "resumed", 1.3),
        ("first token, the last request again", "repeat", 0.5),
        ("first token, the turn after that", "next", 1.3),
    )
    for name, kind, limit in wanted:
        medians = {s: median_ttft(runs, [kind], ["restart"]) for s, runs in by_server.items()}
        ours = medians.get(OURS)
        bar = Bar(ours / warm, "x", limit) if ours and warm and kind != "warm" else None
        if any(medians.values()):
            yield Row(name, tuple(map(_ms, medians.values())), bar)


def _memory(by_server: Mapping[str, Sequence[Run]]) -> Iterable[Row]:
    moments = dict.fromkeys(
        moment for runs in by_server.values() for r in runs for moment in r.memory_bytes
    )
    for moment in moments:
        medians = {
            server: statistics.median(
                r.memory_bytes[moment] for r in runs if moment in r.memory_bytes
            )
            for server, runs in by_server.items()
            if any(moment in r.memory_bytes for r in runs)
        }
        ours, peer = medians.get(OURS), medians.get(PEER)
        bar = Bar((ours - peer) / MB, "MB", 100) if ours and peer else None
        cells = tuple(f"{medians[s] / MB:.0f} MB" if s in medians else "-" for s in by_server)
        yield Row(f"memory, {moment}", cells, bar)


def _disk(by_server: Mapping[str, Sequence[Run]], kv_bytes: int | None) -> Row | None:
    measured = [run for run in by_server.get(OURS, ()) if run.disk_bytes is not None]
    if not measured:
        return None
    used = statistics.median(run.disk_bytes or 0 for run in measured)
    tokens = statistics.median(run.distinct_tokens for run in measured)
    bar = Bar(used / (tokens * kv_bytes), "x", 1.1) if kv_bytes else None
    name = f"disk, beside the KV of {tokens:,.0f} distinct tokens"
    return Row(name, tuple(f"{used / MB:.0f} MB" if s == OURS else "-" for s in by_server), bar)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.0f} ms"


def table(servers: Sequence[str], made: Sequence[Row], *, markdown: bool) -> str:
    """The rows as text in columns or as a Markdown table, with a last line feed."""
    lines = [("", *servers, "figure", "bar", "")]
    for row in made:
        bar = row.bar
        shown = (str(bar), bar.limit_text, bar.verdict) if bar else ("", "", "")
        lines.append((row.name, *row.cells, *shown))
    if markdown:
        ruler = ("---", *["---:"] * (len(servers) + 2), "---")
        return "".join("| " + " | ".join(line) + " |\n" for line in (lines[0], ruler, *lines[1:]))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(_columns(line, widths) for line in lines)


def _columns(line: Sequence[str], widths: Sequence[int]) -> str:
    name, *cells = (
        f"{cell:<{width}}" if index in (0, len(line) - 1) else f"{cell:>{width}}"
        for index, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join((name, *cells)).rstrip() + "\n"
