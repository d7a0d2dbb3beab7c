"""Rows under mlx-lm's `BatchGenerator`, through its public surface. Nothing else touches it.

Rules this file keeps:
1. The generator never ends a row: it gets no stop sequence and no token limit that is reached.
   Rows it ended would be gone when its step breaks after that; ours stay and can be read.
2. After a step that broke, every row that decodes is read again (`extract_cache`), since the
   generator drops the tokens it had drawn; rows it was prefilling are the suspects.
3. A row of n prompt tokens holds fewer than n until it has joined the decoding batch.
4. The generator lengthens the list of tokens it is given, and shows that very list: copies go in
   and come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import make_prompt_cache

from omlxd.sched.rows import RowKey
from omlxd.worker.batch_kv import for_batch
from omlxd.worker.lanes import COLD_START, Drawn, Progress, RowCaches, Start, StepFault, StepOutcome
from omlxd.worker.ports import RowJob
from omlxd.worker.sampling import RowSampling, row_sampling, token_logprobs

UNREACHED = 1 << 40  # tokens
MAX_ROWS = 1 << 10  # the scheduler bounds the rows, not the generator

MakeSampling = Callable[[RowJob, int], RowSampling]


def job_sampling(job: RowJob, drawn: int) -> RowSampling:
    """The row's sampler and processors, `drawn` tokens into its output."""
    prompt_tokens = len(job.prompt)
    return row_sampling(
        job.sampling,
        index=job.index,
        prompt_tokens=prompt_tokens,
        drawn=drawn,
        guides=[make(prompt_tokens) for make in job.guides],
    )


@dataclass(slots=True)
class _BatchRow:
    key: RowKey
    job: RowJob
    sampling: RowSampling
    prompt_tokens: int  # to run before the next token, output of earlier runs included
    restored_tokens: int  # of those, what its caches held from the start
    computed_tokens: int
    drawn: int = 0  # by this generator

    @property
    def decodes(self) -> bool:
        return self.computed_tokens >= self.prompt_tokens


class BatchLane:
    """Implements `lanes.Lane` for models whose caches batch."""

    def __init__(
        self, model: Any, *, prefill_step: int, make_sampling: MakeSampling = job_sampling
    ) -> None:
        self._model = model
        self._generator = BatchGenerator(
            model,
            completion_batch_size=MAX_ROWS,
            prefill_batch_size=MAX_ROWS,
            prefill_step_size=prefill_step,
        )
        self._make_sampling = make_sampling
        self._rows: dict[int, _BatchRow] = {}  # by the generator's uid
        self._uids: dict[RowKey, int] = {}

    def insert(self, job: RowJob, output: Sequence[int], start: Start = COLD_START) -> None:
        key = RowKey(job.request_id, job.index)
        sampling = self._make_sampling(job, len(output))
        prompt = [*job.prompt, *output]
        restored = start.computed_tokens
        bounds = [restored, *start.pauses, len(prompt)]
        (uid,) = self._generator.insert_segments(
            [[prompt[begin:end] for begin, end in pairwise(bounds)]],
            max_tokens=[UNREACHED],
            caches=[for_batch(start.caches or make_prompt_cache(self._model))],
            all_tokens=[prompt[:restored]],
            samplers=[sampling.sampler],
            logits_processors=[list(sampling.processors)],
        )
        self._rows[uid] = _BatchRow(key, job, sampling, len(prompt), restored, restored)
        self._uids[key] = uid

    def remove(self, keys: Sequence[RowKey]) -> None:
        uids = [uid for key in keys if (uid := self._uids.pop(key, None)) is not None]
        for uid in uids:
            del self._rows[uid]
        self._generator.remove(uids)

    def read(self, key: RowKey) -> RowCaches | None:
        uid = self._uids.get(key)
        if uid is None or self._rows[uid].computed_tokens == self._rows[uid].restored_tokens:
            return None  # it holds no more than it was given
        caches, tokens = self._generator.extract_cache([uid])[uid]
        return RowCaches(list(tokens), caches)

    def step(self, prefill_step: int) -> StepOutcome:
        outcome = StepOutcome()
        self._generator.prefill_step_size = prefill_step
        try:
            prompts, tokens = self._generator.next()
        except Exception as error:
            self._recover(error, outcome)
            return outcome
        for response in tokens:
            row = self._rows[response.uid]
            row.drawn += 1
            logprob, top = token_logprobs(response.logprobs, response.token, row.job.top_logprobs)
            computed = row.prompt_tokens + row.drawn
            outcome.drawn.append(Drawn(row.key, response.token, computed, logprob, top))
        self._note_progress(prompts, outcome)
        self._note_faults(outcome)
        return outcome

    def close(self) -> None:
        self._generator.close()

    def _note_progress(self, prompts: Iterable[Any], outcome: StepOutcome) -> None:
        widths = [0]
        for response in prompts:
            row = self._rows[response.uid]
            done = row.restored_tokens + response.progress[0]
            if not response.end_of_prompt:
                widths.append(done - row.computed_tokens)
            row.computed_tokens = done
            outcome.progress.append(Progress(row.key, done))
        outcome.prefill_tokens = max(widths) * (len(widths) - 1)

    def _note_faults(self, outcome: StepOutcome) -> None:
        for row in self._rows.values():
            if row.sampling.error is not None:
                outcome.failed.append((row.key, row.sampling.error))
        for row in self._rows.values():
            row.sampling.forgive()

    def _recover(self, error: Exception, outcome: StepOutcome) -> None:
        """Read the decoding rows again: rule 2. A token more = the step broke after the decode."""
        decoding = [uid for uid, row in self._rows.items() if row.decodes]
        prefilling = [row.key for row in self._rows.values() if not row.decodes]
        for uid, (_, tokens) in self._generator.extract_cache(decoding).items():
            row = self._rows[uid]
            for token in tokens[row.prompt_tokens + row.drawn :]:
                row.drawn += 1
                outcome.drawn.append(Drawn(row.key, token, row.prompt_tokens + row.drawn))
        if outcome.drawn or not decoding:
            outcome.fault = StepFault(error, "prefill", prefilling)
        else:
            suspects = [self._rows[uid].key for uid in decoding]
            outcome.fault = StepFault(error, "decode", suspects)
        self._note_faults(outcome)
