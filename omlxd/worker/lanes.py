"""The port between the engine loop and what steps rows: a lane is one batch of one model.

A lane knows rows by key only. What goes wrong in a step is in its outcome; a `step` that raises
means that the lane is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from omlxd.sched.rows import RowKey
from omlxd.worker.ports import RowJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a row's run begins: caches that hold its first `computed_tokens` tokens.

    `pauses` are numbers of tokens, in order, at which prefill stops for a moment, so that what is
    in the caches then can be read.
    """

    caches: Sequence[Any] | None = None  # plain ones, which become the lane's; None = start empty
    computed_tokens: int = 0
    pauses: Sequence[int] = ()


COLD_START = Start()


@dataclass(frozen=True, slots=True)
class RowCaches:
    """A row as it stands between two steps: its caches hold exactly these tokens."""

    tokens: list[int]
    caches: Sequence[Any]  # plain ones, good until the lane's next step


@dataclass(frozen=True, slots=True)
class Progress:
    """So many tokens of the row's prompt are in its caches."""

    key: RowKey
    computed_tokens: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """The row's next output token."""

    key: RowKey
    token: int
    computed_tokens: int = 0  # tokens in the row's caches now
    logprob: float = 0.0
    top: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True, slots=True)
class StepFault:
    """The step broke. Its rows are suspects; the lane goes on once they are removed."""

    error: Exception
    phase: Literal["prefill", "decode"]
    suspects: Sequence[RowKey]


@dataclass(slots=True, kw_only=True)
class StepOutcome:
    """Everything one step did; `drawn` holds at most one token per row."""

    prefill_tokens: int = 0  # rows x width, padding included
    progress: list[Progress] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    failed: list[tuple[RowKey, Exception]] = field(default_factory=list)  # one row's own fault
    fault: StepFault | None = None


class Lane(Protocol):
    def insert(self, job: RowJob, output: Sequence[int], start: Start = COLD_START) -> None:
        """Queue a row whose first `output` tokens were drawn in an earlier run.

        At least one token of prompt and output is left to be run.

        Raises what a row's own parameters can raise; the lane is then as before.
        """
        ...

    def remove(self, keys: Sequence[RowKey]) -> None:
        """Take rows out at any stage; keys it does not hold are ignored."""
        ...

    def read(self, key: RowKey) -> RowCaches | None:
        """What the row's caches hold, at any stage; None for a row it does not hold."""
        ...

    def step(self, prefill_step: int) -> StepOutcome:
        """One token for every row that decodes, `prefill_step` tokens of every other's prompt."""
        ...


class Device(Protocol):
    """The allocator, as the loop needs it."""

    def memory(self) -> tuple[int, int]:
        """Bytes in use and bytes kept for reuse."""
        ...

    def release(self) -> None:
        """Give back what is kept for reuse; called at rest, and when blocks went."""
        ...
