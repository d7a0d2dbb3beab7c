"""Everything at once: shared prompts, cancels, settings, commands, restarts; fixed seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from omlxd.ipc.messages import CacheCommand, LiveSettings
from tests.support.prefixes import Truth, cold, tokens

pytestmark = [pytest.mark.mlx, pytest.mark.slow]

ROUNDS = 4
MOST_TOKENS = 700


class Storm:
    """Requests of one life of an engine, many of them with something in common."""

    def __init__(self, truth: Truth, source: random.Random, said: list[list[int]]) -> None:
        self._truth, self._source = truth, source
        self._said = said  # conversations so far
        self._bases = [tokens(100 * number + 37, number) for number in range(1, 5)]
        self._count = 0
        self.hits = 0

    def round(self) -> None:
        source, engine = self._source, self._truth.rig.engine
        prompts: dict[str, list[int]] = {}
        for _ in range(source.randrange(1, 7)):
            self._count += 1
            name = f"r{self._count}"
            prompt = self._prompt()
            self._truth.submit(name, prompt, source.randrange(1, 40))
            if source.random() < 0.2:
                engine.cancel(name)
            else:
                prompts[name] = prompt
        if source.random() < 0.3:
            engine.configure(self._settings())
        if source.random() < 0.2:
            engine.command_cache(CacheCommand(1, source.choice(["clear", "clear_hot"])))
        self._truth.check(*prompts)
        self.hits += sum(self._truth.cached(name) > 0 for name in prompts)
        self._said += [[*p, *self._truth.rig.ids(name)] for name, p in prompts.items()]

    def _prompt(self) -> list[int]:
        source = self._source
        if self._said and source.random() < 0.5:
            prompt: Sequence[int] = source.choice(self._said[-20:])
        else:
            base = source.choice(self._bases)
            prompt = base[: source.randrange(1, len(base) + 1)]
        return [*prompt, *tokens(source.randrange(1, 40), source.randrange(8))][:MOST_TOKENS]

    def _settings(self) -> LiveSettings:
        source = self._source
        return LiveSettings(
            hot_bytes=source.choice([0, 1 << 18, 1 << 22]),
            cold=source.random() < 0.7,
            prefill_step_tokens=source.choice([32, 64, 256]),
            max_concurrent_requests=source.choice([1, 3, 8]),
        )


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-lfm2"])
def test_every_token_is_that_of_a_cold_run(
    tiny_models: Path, tmp_path: Path, name: str, seed: int
) -> None:
    """Three lives over one folder."""
    source, hits = random.Random(seed), 0
    said: list[list[int]] = []
    for _ in range(3):
        hot_bytes = source.choice([1 << 18, 1 << 20, 1 << 24])
        with Truth(tiny_models / name, **cold(tmp_path / "cold", hot_bytes=hot_bytes)) as truth:
            storm = Storm(truth, source, said)
            for _ in range(ROUNDS):
                storm.round()
            hits += storm.hits
    assert hits > ROUNDS
