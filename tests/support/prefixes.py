"""Asking a real engine and comparing with a cold solo run: the truth about the prefix cache."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omlxd.ipc.messages import CacheReport, LiveSettings
from omlxd.worker.ports import RowUsage
from tests.support.engine import EngineRig, solo

BLOCK = 16
HOT = LiveSettings(hot_bytes=64 << 20, prefill_step_tokens=64)

# What decides how far a prefix can be reused, per class of cache.
KV_ONLY = ("tiny-llama", "tiny-qwen3", "tiny-qwen3-moe")
WINDOWED = ("tiny-gemma3", "tiny-llama4")
RECURRENT = ("tiny-qwen3-next", "tiny-lfm2", "tiny-falcon-h1")
EVERY_CLASS = (*KV_ONLY, *WINDOWED, *RECURRENT)


def tokens(count: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(8, 1000) for _ in range(count)]


class Truth:
    """One engine whose every answer is checked against a cold run of the same model, alone."""

    def __init__(
        self, model: Path, live: LiveSettings = HOT, *, block_tokens: int = BLOCK, **load: Any
    ) -> None:
        self.model = model
        self.rig = EngineRig(model, live, block_tokens=block_tokens, **load)
        self._asked: dict[str, tuple[Sequence[int], int]] = {}

    def __enter__(self) -> Truth:
        self.rig.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self.rig.__exit__(*details)

    def submit(self, name: str, prompt: Sequence[int], count: int = 12) -> None:
        self._asked[name] = (prompt, count)
        self.rig.submit(name, prompt, max_tokens=count)

    def check(self, *names: str) -> None:
        """Wait for these, and hold every token of theirs against the truth."""
        self.rig.wait(*names)
        assert self.rig.failed == {}
        for name in names:
            prompt, count = self._asked[name]
            assert self.rig.ids(name) == solo(self.model, prompt, count)[0], name

    def ask(self, name: str, prompt: Sequence[int], count: int = 12) -> list[int]:
        self.submit(name, prompt, count)
        self.check(name)
        return self.rig.ids(name)

    def usage(self, name: str) -> RowUsage:
        return next(each for each in self.rig.usages if each.request_id == name)

    def cached(self, name: str) -> int:
        """Prompt tokens that were not run; the three numbers always make up the prompt."""
        usage = self.usage(name)
        cached = usage.cached_ram + usage.cached_ssd
        assert cached + usage.computed == len(self._asked[name][0])
        return cached

    def wait_for_report(self, condition: Callable[[CacheReport], bool]) -> CacheReport:
        """The newest report, once one has come of which this is true."""
        self.rig.wait_for(lambda: any(map(condition, self._reports())))
        return self._reports()[-1]

    def _reports(self) -> list[CacheReport]:
        return [each for each in self.rig.cache_frames if isinstance(each, CacheReport)]


def cold(folder: Path, *, hot_bytes: int = 64 << 20) -> dict[str, Any]:
    """Arguments for a `Truth` with a cold tier in `folder`, which is made."""
    folder.mkdir(exist_ok=True)
    live = LiveSettings(hot_bytes=hot_bytes, prefill_step_tokens=64, cold=True)
    return {"live": live, "cold_dir": str(folder)}


def warm_from_disk(model: Path, folder: Path) -> Truth:
    """A new engine that has listed what an earlier one left on disk."""
    truth = Truth(model, **cold(folder))
    truth.wait_for_report(lambda report: report.cold_entries > 0)
    return truth
