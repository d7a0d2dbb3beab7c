"""The engine against mlx-lm's BatchGenerator used directly, in this process.

    python benchmarks/engine.py MODEL_FOLDER [--rounds 3]

On Linux run it with LD_PRELOAD set to OpenBLAS. Compare ratios: other work on the machine moves
both sides. The mixed case starts a prompt of 1,000 tokens beside one stream.
"""

from __future__ import annotations

import argparse
import queue
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.utils import load_model

from omlxd.errors import OmlxError
from omlxd.ipc.messages import LiveSettings, LoadSettings
from omlxd.worker.lm import LmEngine, load_engine
from omlxd.worker.ports import CacheFrame, EngineStats, ResolvedSampling, RowJob, RowUsage, TokenOut

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 40
LONG_PROMPT_TOKENS = 1000
GREEDY = ResolvedSampling(temperature=0)


class Recorder:
    """Puts every token on a queue with the time it came."""

    def __init__(self) -> None:
        self.tokens: queue.SimpleQueue[tuple[float, TokenOut]] = queue.SimpleQueue()

    def on_scheduled(self, request_id: str) -> None:
        pass

    def on_tokens(self, tokens: Sequence[TokenOut], ended: Sequence[RowUsage]) -> None:
        now = time.perf_counter()
        for token in tokens:
            self.tokens.put((now, token))

    def on_failed(self, request_id: str, error: OmlxError) -> None:
        raise SystemExit(f"{request_id}: {error}")

    def on_stats(self, stats: EngineStats) -> None:
        pass

    def on_cache(self, frame: CacheFrame) -> None:
        pass


def prompt(tokens: int) -> list[int]:
    return [random.randrange(100, 1000) for _ in range(tokens)]


def job(name: str, tokens: Sequence[int], max_tokens: int) -> RowJob:
    return RowJob(
        request_id=name,
        index=0,
        prompt=tokens,
        max_tokens=max_tokens,
        sampling=GREEDY,
        stop_tokens=frozenset(),
    )


def engine_decode(engine: LmEngine, recorder: Recorder, rows: int) -> float:
    """Seconds per step once all rows decode."""
    for index in range(rows):
        engine.submit([job(f"r{index}", prompt(PROMPT_TOKENS), OUTPUT_TOKENS)])
    times: dict[str, list[float]] = {}
    for _ in range(rows * OUTPUT_TOKENS):
        now, token = recorder.tokens.get()
        times.setdefault(token.request_id, []).append(now)
    began = max(each[0] for each in times.values())
    ended = min(each[-1] for each in times.values())
    steps = sum(began < now <= ended for now in next(iter(times.values())))
    return (ended - began) / steps


def generator_decode(model: object, rows: int) -> float:
    generator = BatchGenerator(model, max_tokens=OUTPUT_TOKENS)
    generator.insert([prompt(PROMPT_TOKENS) for _ in range(rows)])
    while len(generator.next()[1]) < rows:
        pass
    began, steps = time.perf_counter(), OUTPUT_TOKENS - 2
    for _ in range(steps):
        generator.next()
    return (time.perf_counter() - began) / steps


def engine_mixed(engine: LmEngine, recorder: Recorder) -> tuple[float, float]:
    """Worst gap of the stream, and the newcomer's time to first token."""
    engine.submit([job("stream", prompt(PROMPT_TOKENS), 200)])
    for _ in range(10):
        last, _ = recorder.tokens.get()
    began, worst, ttft = time.perf_counter(), 0.0, 0.0
    engine.submit([job("newcomer", prompt(LONG_PROMPT_TOKENS), 4)])
    while not ttft:
        now, token = recorder.tokens.get()
        if token.request_id == "stream":
            worst, last = max(worst, now - last), now
        else:
            ttft = now - began
    finish(engine, recorder, ("stream", "newcomer"))
    return worst, ttft


def generator_mixed(model: object, step: int) -> tuple[float, float]:
    generator = BatchGenerator(model, max_tokens=200, prefill_step_size=step)
    (stream,) = generator.insert([prompt(PROMPT_TOKENS)])
    for _ in range(10):
        generator.next()
    (newcomer,) = generator.insert([prompt(LONG_PROMPT_TOKENS)])
    began = last = time.perf_counter()
    worst = ttft = 0.0
    while not ttft:
        uids = {response.uid for response in generator.next()[1]}
        now = time.perf_counter()
        if stream in uids:
            worst, last = max(worst, now - last), now
        if newcomer in uids:
            ttft = now - began
    return worst, ttft


def finish(engine: LmEngine, recorder: Recorder, names: Sequence[str]) -> None:
    """Cancel and drain: a fresh request marks the end of what was under way."""
    for name in names:
        engine.cancel(name)
    engine.submit([job("mark", prompt(2), 1)])
    while recorder.tokens.get()[1].request_id != "mark":
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    random.seed(1)
    recorder = Recorder()
    engine = load_engine(
        LoadSettings(model_id="bench", path=str(arguments.model), kind="llm"),
        LiveSettings(),
        recorder,
    )
    engine.facts.result()
    model, _ = load_model(arguments.model)
    mx.eval(model.parameters())
    for rows in (1, 8):
        pairs = [
            (engine_decode(engine, recorder, rows), generator_decode(model, rows))
            for _ in range(arguments.rounds)
        ]
        ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"decode, {rows} rows: {ours * 1e3:.1f} ms a step, ", end="")
        print(f"generator alone {theirs * 1e3:.1f}; ratio {ratio:.3f}")
    for _ in range(arguments.rounds):
        worst, ttft = engine_mixed(engine, recorder)
        frozen, one_step = generator_mixed(model, LONG_PROMPT_TOKENS * 2)
        print(f"mixed: worst gap {worst:.2f} s, first token {ttft:.2f} s; ", end="")
        print(f"one step: gap {frozen:.2f} s, {one_step:.2f} s; ratio {ttft / one_step:.2f}")
    engine.stop()


if __name__ == "__main__":
    main()
