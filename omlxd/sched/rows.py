"""One row: a prompt and the tokens drawn for it, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RowStatus = Literal["waiting", "prefill", "decode"]

# A preempted row goes back to waiting; a row that ends is forgotten, whatever its status.
TRANSITIONS: dict[RowStatus, frozenset[RowStatus]] = {
    "waiting": frozenset({"prefill"}),
    "prefill": frozenset({"decode", "waiting"}),
    "decode": frozenset({"waiting"}),
}


@dataclass(frozen=True, slots=True)
class RowKey:
    """One choice of one request."""

    request_id: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSpec:
    """What a request asks for, in tokens."""

    key: RowKey
    prompt_tokens: int
    max_tokens: int


@dataclass(slots=True, kw_only=True)
class Row:
    spec: RowSpec
    order: int  # place in the line, kept for life
    status: RowStatus = "waiting"
    lane: int | None = None  # set while running
    computed_tokens: int = 0  # of the prompt and, after a preemption, of the output so far
    output_tokens: int = 0
    resumed_at: int = 0  # output tokens that belong to the prompt since the last preemption
    alone: bool = False  # was in a failed prefill with others: retried without company
    restorable: int = 0  # tokens that the prefix cache is expected to save it, while it waits
    is_held: bool = False  # stays in the line until it is released; others pass it

    def move(self, status: RowStatus, lane: int | None) -> None:
        assert status in TRANSITIONS[self.status], (self.spec.key, self.status, status)
        self.status, self.lane = status, lane

    @property
    def prefill_tokens(self) -> int:
        """Tokens to run before the next one can be drawn."""
        return self.spec.prompt_tokens + self.resumed_at

    @property
    def remaining(self) -> int:
        return self.prefill_tokens - self.computed_tokens

    @property
    def length(self) -> int:
        """Tokens its KV holds now, or will hold once its prompt is run."""
        return self.spec.prompt_tokens + self.output_tokens
