"""A lane without a model: a row's next token is the sum of its tokens, modulo the vocabulary.

Prompts name the faults: a prompt that starts with one of the tokens below breaks as it says.
"""

from __future__ import annotations

from collections.abc import Sequence

from omlxd.sched.rows import RowKey
from omlxd.worker.lanes import COLD_START, Drawn, Progress, RowCaches, Start, StepFault, StepOutcome
from omlxd.worker.ports import RowJob

VOCABULARY = 100
BREAKS_INSERT = 90
BREAKS_PREFILL = 91
BREAKS_DECODE = 92
BREAKS_ITSELF = 93


def expected(prompt: Sequence[int], count: int) -> list[int]:
    """What a row that meets no fault draws."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(sum(tokens) % VOCABULARY)
    return tokens[len(prompt) :]


class _FakeRow:
    def __init__(self, job: RowJob, output: Sequence[int], start: Start) -> None:
        self.job = job
        self.tokens = [*job.prompt, *output]
        self.prompt_tokens = len(self.tokens)
        self.pauses = [*start.pauses, self.prompt_tokens]
        self.computed = start.computed_tokens


class FakeLane:
    """Implements `omlxd.worker.lanes.Lane`; `inserted` keeps what each insertion was given."""

    def __init__(self) -> None:
        self.rows: dict[RowKey, _FakeRow] = {}
        self.inserted: list[tuple[str, list[int]]] = []
        self.starts: list[tuple[str, Start]] = []
        self.steps = 0

    def insert(self, job: RowJob, output: Sequence[int], start: Start = COLD_START) -> None:
        if job.prompt[0] == BREAKS_INSERT:
            raise ValueError("no such parameters")
        self.inserted.append((job.request_id, list(output)))
        row = self.rows[RowKey(job.request_id, job.index)] = _FakeRow(job, output, start)
        assert start.caches is None or start.caches == [row.tokens[: row.computed]]
        self.starts.append((job.request_id, start))

    def remove(self, keys: Sequence[RowKey]) -> None:
        for key in keys:
            self.rows.pop(key, None)

    def read(self, key: RowKey) -> RowCaches | None:
        """Its "caches" are the tokens they hold."""
        if (row := self.rows.get(key)) is None:
            return None
        held = row.tokens if row.computed == row.prompt_tokens else row.tokens[: row.computed]
        return RowCaches(list(held), [list(held)])

    def step(self, prefill_step: int) -> StepOutcome:
        self.steps += 1
        outcome = StepOutcome()
        decoding = [key for key, row in self.rows.items() if row.computed >= row.prompt_tokens]
        prefilling = [key for key in self.rows if key not in decoding]
        if any(self._starts_with(key, BREAKS_DECODE) for key in decoding):
            outcome.fault = StepFault(RuntimeError("decode"), "decode", decoding)
            return outcome
        for key in decoding:
            if self._starts_with(key, BREAKS_ITSELF):
                outcome.failed.append((key, ArithmeticError("sampler")))
            row = self.rows[key]
            row.tokens.append(sum(row.tokens) % VOCABULARY)
            outcome.drawn.append(Drawn(key, row.tokens[-1], len(row.tokens)))
        if any(self._starts_with(key, BREAKS_PREFILL) for key in prefilling):
            outcome.fault = StepFault(RuntimeError("prefill"), "prefill", prefilling)
            return outcome
        for key in prefilling:
            row = self.rows[key]
            pause = next(each for each in row.pauses if each > row.computed)
            row.computed = min(row.computed + prefill_step, pause)
            outcome.progress.append(Progress(key, row.computed))
        outcome.prefill_tokens = len(prefilling) * prefill_step
        return outcome

    def _starts_with(self, key: RowKey, token: int) -> bool:
        return self.rows[key].job.prompt[0] == token


class FakeDevice:
    """Implements `omlxd.worker.lanes.Device`."""

    def __init__(self) -> None:
        self.active_bytes = 1000
        self.releases = 0

    def memory(self) -> tuple[int, int]:
        return self.active_bytes, 10

    def release(self) -> None:
        self.releases += 1
