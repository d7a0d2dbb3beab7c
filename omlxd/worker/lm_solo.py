"""One row at a time, for models whose caches cannot be batched: the same lane, no generator."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from omlxd.sched.rows import RowKey
from omlxd.worker.generators import MakeSampling, job_sampling
from omlxd.worker.lanes import COLD_START, Drawn, Progress, RowCaches, Start, StepFault, StepOutcome
from omlxd.worker.ports import RowJob
from omlxd.worker.sampling import RowSampling, token_logprobs


@dataclass(slots=True)
class _SoloRow:
    key: RowKey
    job: RowJob
    sampling: RowSampling
    tokens: list[int]  # prompt, then what was drawn
    prompt_tokens: int
    pauses: Sequence[int]
    cache: list[Any]
    computed_tokens: int


class SoloLane:
    """Implements `lanes.Lane`; rows beyond the first wait inside."""

    def __init__(self, model: Any, *, make_sampling: MakeSampling = job_sampling) -> None:
        self._model = model
        self._make_sampling = make_sampling
        self._rows: deque[_SoloRow] = deque()

    def insert(self, job: RowJob, output: Sequence[int], start: Start = COLD_START) -> None:
        key = RowKey(job.request_id, job.index)
        prompt = [*job.prompt, *output]
        sampling = self._make_sampling(job, len(output))
        restored, caches = start.computed_tokens, list(start.caches or ())
        self._rows.append(
            _SoloRow(key, job, sampling, prompt, len(prompt), start.pauses, caches, restored)
        )

    def remove(self, keys: Sequence[RowKey]) -> None:
        self._rows = deque(row for row in self._rows if row.key not in keys)

    def read(self, key: RowKey) -> RowCaches | None:
        row = next((row for row in self._rows if row.key == key), None)
        return None if row is None else RowCaches(row.tokens[: row.computed_tokens], row.cache)

    def step(self, prefill_step: int) -> StepOutcome:
        outcome = StepOutcome()
        if not self._rows:
            return outcome
        row = self._rows[0]
        decodes = row.computed_tokens >= row.prompt_tokens - 1
        try:
            if decodes:
                self._draw(row, outcome)
            else:
                self._prefill(row, prefill_step, outcome)
        except Exception as error:
            outcome.fault = StepFault(error, "decode" if decodes else "prefill", [row.key])
        if row.sampling.error is not None:
            outcome.failed.append((row.key, row.sampling.error))
            row.sampling.forgive()
        return outcome

    def _prefill(self, row: _SoloRow, prefill_step: int, outcome: StepOutcome) -> None:
        """All of the prompt but its last token, which draws the first output token."""
        row.cache = row.cache or make_prompt_cache(self._model)
        start = row.computed_tokens
        pause = next((each for each in row.pauses if each > start), row.prompt_tokens)
        end = min(start + prefill_step, pause, row.prompt_tokens - 1)
        self._model(mx.array(row.tokens[start:end])[None], cache=row.cache)
        mx.eval([cache.state for cache in row.cache])
        row.computed_tokens = end
        outcome.prefill_tokens = end - start
        outcome.progress.append(Progress(row.key, end))

    def _draw(self, row: _SoloRow, outcome: StepOutcome) -> None:
        row.cache = row.cache or make_prompt_cache(self._model)
        logits = self._model(mx.array(row.tokens[-1:])[None], cache=row.cache)[:, -1, :]
        if row.sampling.processors:
            context = mx.array(row.tokens)
            for process in row.sampling.processors:
                logits = process(context, logits)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        token = int(row.sampling.sampler(logprobs).item())
        row.computed_tokens = len(row.tokens)
        if row.sampling.error is not None:
            return  # the token is not one the row asked for
        row.tokens.append(token)
        outcome.progress.append(Progress(row.key, row.prompt_tokens))
        logprob, top = token_logprobs(logprobs[0], token, row.job.top_logprobs)
        outcome.drawn.append(Drawn(row.key, token, row.computed_tokens, logprob, top))
