"""What keeps one row to a form: logits processors, which the engine makes and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llguidance.numpy
import mlx.core as mx
import numpy as np

from omlxd.worker.output_format import OutputFormat

Array = Any  # mx.array; MLX's stubs are not followed


class GrammarFault(Exception):
    """A token that the grammar does not allow was drawn, or its next step costs too much."""


class GrammarGuide:
    """Masks what the grammar does not allow next. Raises GrammarFault."""

    def __init__(self, matcher: Any, *, size: int, ends: frozenset[int], seen: int) -> None:
        self._matcher, self._size, self._seen = matcher, size, seen
        self._bits = llguidance.numpy.allocate_token_bitmask(1, size)
        ending = np.zeros(size, dtype=bool)
        ending[sorted(ends)] = True
        self._ending = ending

    def __call__(self, tokens: Array, logits: Array) -> Array:
        for token in tokens[self._seen :].tolist():
            self._seen += 1
            if not self._matcher.is_stopped() and not self._matcher.consume_token(token):
                raise GrammarFault(self._matcher.get_error() or f"token {token} is not allowed")
        return _masked(self._allowed(), logits)

    def _allowed(self) -> Any:
        """(size,) booleans. A grammar that is complete stops without an end of turn: only that."""
        if self._matcher.is_stopped():
            if problem := self._matcher.get_error():
                raise GrammarFault(problem)
            return self._ending
        llguidance.numpy.fill_next_token_bitmask(self._matcher, self._bits, 0)
        if problem := self._matcher.get_error():
            raise GrammarFault(problem)
        words = self._bits[0].view(np.uint8)
        return np.unpackbits(words, bitorder="little")[: self._size].astype(bool)


class ThinkingBudget:
    """Closes reasoning after `budget` tokens, by drawing the closing mark token by token."""

    def __init__(
        self,
        form: OutputFormat,
        *,
        budget: int,
        closing: list[int],
        text_of: Callable[[int], bytes],
        in_reasoning: bool,
        seen: int,
    ) -> None:
        self._form, self._budget, self._closing, self._text_of = form, budget, closing, text_of
        self._seen = seen
        self._is_open: bool | None = True if in_reasoning else None  # None = not known yet
        self._text = b""
        self._num_thought = 0
        self._num_forced = 0

    def __call__(self, tokens: Array, logits: Array) -> Array:
        for token in tokens[self._seen :].tolist():
            self._seen += 1
            self._read(token)
        if not self._is_open or self._num_thought < self._budget:
            return logits
        allowed = np.zeros(logits.shape[-1], dtype=bool)
        allowed[self._closing[self._num_forced]] = True
        return _masked(allowed, logits)

    def _read(self, token: int) -> None:
        if self._is_open is False:
            return
        if self._is_open and self._num_thought >= self._budget:
            self._num_forced += 1
            self._is_open = self._num_forced < len(self._closing)
            return
        self._text += self._text_of(token)
        if self._is_open is None:
            self._open()
            return
        self._num_thought += 1
        if self._text.endswith(self._form.think_end.encode()):
            self._is_open = False

    def _open(self) -> None:
        start = self._form.think_start.encode()
        begun = self._text.lstrip()
        if begun.startswith(start):
            self._is_open, self._text = True, b""
        elif not start.startswith(begun):
            self._is_open = False


def _masked(allowed: Any, logits: Array) -> Array:
    width = logits.shape[-1]
    if len(allowed) < width:  # a head may be padded beyond the vocabulary
        allowed = np.concatenate([allowed, np.zeros(width - len(allowed), dtype=bool)])
    return mx.where(mx.array(allowed[:width])[None], logits, -mx.inf)
