"""How one row draws its tokens: a sampler and logits processors for mlx-lm's generator.

Both are total. Whatever raises inside a generator's step costs the row's neighbours their tokens,
so a fault is kept in `error`, a safe value is returned, and the engine removes the row afterwards.

Values that differ from request to request reach compiled functions as arrays: as Python numbers
they are constants of the compiled code, and every new temperature would compile anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.sample_utils import (
    apply_top_k,
    apply_top_p,
    greedy_sampler,
    make_logits_processors,
    make_repetition_penalty,
)

from omlxd.worker.ports import Guide, ResolvedSampling

Array = Any  # mx.array; MLX's stubs are not followed
WHOLE_CONTEXT = 1 << 30
SHARED_SAMPLERS = 64


class Sampler:
    """Log-probabilities (rows, vocabulary) → tokens (rows,). Draws the best token on a fault."""

    def __init__(self, draw: Callable[[Array], Array]) -> None:
        self._draw = draw
        self.error: Exception | None = None

    def __call__(self, logprobs: Array) -> Array:
        try:
            return self._draw(logprobs)
        except Exception as error:
            self.error = error
            return greedy_sampler(logprobs)


class Processor:
    """Tokens so far (n,), logits (1, vocabulary) → logits; unchanged ones on a fault."""

    def __init__(self, process: Callable[[Array, Array], Array]) -> None:
        self._process = process
        self.error: Exception | None = None

    def __call__(self, tokens: Array, logits: Array) -> Array:
        try:
            return self._process(tokens, logits)
        except Exception as error:
            self.error = error
            return logits


@dataclass(frozen=True, slots=True)
class RowSampling:
    sampler: Sampler
    processors: Sequence[Processor] = ()

    @property
    def error(self) -> Exception | None:
        """The first fault kept."""
        parts: list[Sampler | Processor] = [self.sampler, *self.processors]
        return next((part.error for part in parts if part.error is not None), None)

    def forgive(self) -> None:
        """Forget the fault of the sampler, which rows to come may share."""
        self.sampler.error = None


def row_sampling(
    sampling: ResolvedSampling,
    *,
    index: int,
    prompt_tokens: int,
    drawn: int = 0,
    guides: Sequence[Guide] = (),
) -> RowSampling:
    """`index` is the row's place in its request, `drawn` the tokens it drew in an earlier run.

    Guides come last: what they forbid stays forbidden.
    """
    processors = [*_processors(sampling, prompt_tokens), *map(Processor, guides)]
    return RowSampling(_sampler(sampling, index=index, drawn=drawn), processors)


# ------------------------------------------------------------------ drawing


def _sampler(sampling: ResolvedSampling, *, index: int, drawn: int) -> Sampler:
    filters = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)
    if sampling.seed is None or sampling.temperature == 0:
        return shared_sampler(*filters)
    return Sampler(_Seeded(filters, seed=sampling.seed + index, skip=drawn))


@lru_cache(maxsize=SHARED_SAMPLERS)
def shared_sampler(temperature: float, top_p: float, top_k: int, min_p: float) -> Sampler:
    """One object per set of values: rows that share it are drawn in one call."""
    if temperature == 0:
        return Sampler(greedy_sampler)
    return Sampler(partial(_draw, (temperature, top_p, top_k, min_p)))


class _Seeded:
    """Draws from a chain of keys of its own, so that neighbours cannot change what it draws."""

    def __init__(self, filters: tuple[float, float, int, float], *, seed: int, skip: int) -> None:
        self._filters = filters
        self._key = mx.random.key(seed % (1 << 64))
        for _ in range(skip):
            self._next_key()
        mx.eval(self._key)

    def __call__(self, logprobs: Array) -> Array:
        return _draw(self._filters, logprobs, key=self._next_key())

    def _next_key(self) -> Array:
        self._key, key = mx.random.split(self._key)
        return key


def _draw(
    filters: tuple[float, float, int, float], logprobs: Array, *, key: Array | None = None
) -> Array:
    """mlx-lm's order: top_p, min_p, top_k, and the temperature last."""
    temperature, top_p, top_k, min_p = filters
    if 0 < top_p < 1:
        logprobs = apply_top_p(logprobs, mx.array(top_p))
    if min_p > 0:
        floor = mx.max(logprobs, axis=-1, keepdims=True) + math.log(min_p)
        logprobs = mx.where(logprobs < floor, -mx.inf, logprobs)
    if 0 < top_k < logprobs.shape[-1]:
        logprobs = apply_top_k(logprobs, top_k)
    return mx.random.categorical(logprobs * (1 / temperature), key=key)


# ------------------------------------------------------------------ processing


def _processors(sampling: ResolvedSampling, prompt_tokens: int) -> list[Processor]:
    made: list[Callable[[Array, Array], Array]] = []
    if sampling.logit_bias:
        made += make_logits_processors(logit_bias=dict(sampling.logit_bias))
    if sampling.repetition_penalty != 1:
        made.append(make_repetition_penalty(sampling.repetition_penalty, WHOLE_CONTEXT))
    # A presence penalty of 0 is off to mlx-lm, and so is a frequency penalty.
    penalties = make_logits_processors(
        presence_penalty=sampling.presence_penalty,
        presence_context_size=WHOLE_CONTEXT,
        frequency_penalty=sampling.frequency_penalty,
        frequency_context_size=WHOLE_CONTEXT,
    )
    made += [partial(_on_output, penalty, prompt_tokens) for penalty in penalties]
    return [Processor(process) for process in made]


def _on_output(
    penalty: Callable[[Array, Array], Array], prompt_tokens: int, tokens: Array, logits: Array
) -> Array:
    """These two count what was generated, not what was asked."""
    return penalty(tokens[prompt_tokens:], logits)


# ------------------------------------------------------------------ reading


def token_logprobs(
    logprobs: Array, token: int, top: int | None
) -> tuple[float, list[tuple[int, float]]]:
    """The token's log-probability and the `top` likeliest, from one row's (vocabulary,) array.

    They are those the token was drawn from, before temperature and filters. None = not asked for.
    """
    if top is None:
        return 0.0, []
    values = np.array(logprobs.astype(mx.float32))
    best = values.argsort()[::-1][: max(0, top)]
    return float(values[token]), [(int(each), float(values[each])) for each in best]
