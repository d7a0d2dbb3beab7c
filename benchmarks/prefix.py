"""The next turn of a conversation: the engine's prefix cache against a cache that is kept alive.

    python benchmarks/prefix.py MODEL_FOLDER [--prefixes 1024,4096] [--rounds 5]

Time to the first token of a turn of 200 new tokens. "live" is mlx-lm's `generate_step` going on
with a cache that was never put away: nothing is quicker. On Linux run it with LD_PRELOAD set to
OpenBLAS for models of real size. Compare ratios: other work on the machine moves all columns.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from omlxd.errors import OmlxError
from omlxd.ipc.messages import CacheReport, LiveSettings, LoadSettings
from omlxd.worker.lm import LmEngine, load_engine
from omlxd.worker.ports import (
    CacheFrame,
    EngineStats,
    ResolvedSampling,
    RowJob,
    RowUsage,
    TokenOut,
)
from omlxd.worker.prefix_report import INTERVAL_S

NEW_TOKENS = 200
GREEDY = ResolvedSampling(temperature=0)
STEP_TOKENS = 256 if not mx.metal.is_available() else 2048


class Listener:
    """Times of first tokens, and the newest report."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.cached: dict[str, int] = {}
        self.ended: set[str] = set()
        self.report: CacheReport | None = None
        self.changed = threading.Condition()

    def on_scheduled(self, request_id: str) -> None:
        pass

    def on_tokens(self, tokens: Sequence[TokenOut], ended: Sequence[RowUsage]) -> None:
        now = time.perf_counter()
        with self.changed:
            for token in tokens:
                self.first.setdefault(token.request_id, now)
                if token.finish:
                    self.ended.add(token.request_id)
            for usage in ended:
                self.cached[usage.request_id] = usage.cached_ram + usage.cached_ssd
            self.changed.notify_all()

    def on_failed(self, request_id: str, error: OmlxError) -> None:
        raise SystemExit(f"{request_id}: {error}")

    def on_stats(self, stats: EngineStats) -> None:
        pass

    def on_cache(self, frame: CacheFrame) -> None:
        with self.changed:
            if isinstance(frame, CacheReport):
                self.report = frame
            self.changed.notify_all()


class Bench:
    """One engine over a folder for its blocks."""

    def __init__(self, model: Path, cold: Path) -> None:
        self.listener = Listener()
        self.requests = 0
        load = LoadSettings(model_id="bench", path=str(model), kind="llm", cold_dir=str(cold))
        live = LiveSettings(hot_bytes=4 << 30, cold=True)
        self.engine: LmEngine = load_engine(load, live, self.listener)
        self.engine.facts.result()

    def ask(self, prompt: Sequence[int]) -> tuple[float, int]:
        """Seconds to the first token, and prompt tokens that were not run."""
        self.requests += 1
        name = f"r{self.requests}"
        began = time.perf_counter()
        self.engine.submit(
            [
                RowJob(
                    request_id=name,
                    index=0,
                    prompt=prompt,
                    max_tokens=2,
                    sampling=GREEDY,
                    stop_tokens=frozenset(),
                )
            ]
        )
        listener = self.listener
        with listener.changed:
            listener.changed.wait_for(lambda: name in listener.ended)
        return listener.first[name] - began, listener.cached[name]

    def store_s(self) -> float:
        """Seconds that storing has taken, once all of it is on disk."""
        time.sleep(2 * INTERVAL_S)  # a report comes at most so often
        listener = self.listener
        with listener.changed:
            listener.changed.wait_for(
                lambda: listener.report is not None and not listener.report.queued_bytes
            )
            assert listener.report is not None
            return listener.report.store_s


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds; `warm` and `live` are medians."""

    prefix: int
    cold: float
    live: float
    warm: float
    disk: float
    store: float


def live_turn(model: Any, cache: Sequence[Any], new: Sequence[int]) -> float:
    """On a copy of the live cache, so that every round begins where the prefix ended."""
    copies = [type(each).from_state(each.state) for each in cache]
    mx.eval([each.state for each in copies])
    began = time.perf_counter()
    next(
        generate_step(
            mx.array(list(new)),
            model,
            max_tokens=1,
            prompt_cache=copies,
            prefill_step_size=STEP_TOKENS,
        )
    )
    return time.perf_counter() - began


def measure(folder: Path, model: Any, prefix: int, rounds: int) -> Row:
    source = random.Random(prefix)
    prompt = [source.randrange(100, 1000) for _ in range(prefix)]
    turns = [[source.randrange(100, 1000) for _ in range(NEW_TOKENS)] for _ in range(rounds + 2)]
    cache = make_prompt_cache(model)
    list(
        generate_step(
            mx.array(prompt), model, max_tokens=1, prompt_cache=cache, prefill_step_size=STEP_TOKENS
        )
    )
    with tempfile.TemporaryDirectory() as cold_folder:
        bench = Bench(folder, Path(cold_folder))
        bench.ask(turns[0])  # compiles
        before = bench.store_s()
        cold, _ = bench.ask(prompt)
        store = bench.store_s() - before
        live, warm = [], []
        for turn in turns[2:]:
            live.append(live_turn(model, cache, turn))
            seconds, cached = bench.ask([*prompt, *turn])
            assert cached >= prefix - 1, cached
            warm.append(seconds)
        bench.engine.stop()
        fresh = Bench(folder, Path(cold_folder))
        fresh.ask(turns[0])
        disk, cached = fresh.ask([*prompt, *turns[1]])
        assert cached >= prefix - 64, cached
        fresh.engine.stop()
    return Row(prefix, cold, statistics.median(live), statistics.median(warm), disk, store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prefixes", default="1024,4096")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    model, _ = load_model(arguments.model)
    print("prefix    cold s    live ms   warm ms   warm/live   disk ms   store/cold")
    for prefix in map(int, arguments.prefixes.split(",")):
        row = measure(arguments.model, model, prefix, arguments.rounds)
        print(
            f"{row.prefix:6}  {row.cold:8.3f}  {row.live * 1e3:9.1f} {row.warm * 1e3:9.1f}"
            f"   {row.warm / row.live:9.2f} {row.disk * 1e3:9.1f}   {row.store / row.cold:10.1%}"
        )


if __name__ == "__main__":
    main()
