"""Grammars made ready for rows, and what they do to a row's logits.

A grammar is compiled when its request is accepted, so that a bad one is refused there. llguidance
bounds what compiling and one token may cost; what exceeds that is refused, or fails its row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import llguidance
import llguidance.hf
import llguidance.numpy
import mlx.core as mx
import numpy as np

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Constraint
from omlxd.worker.grammar_text import Literal, ReplyRules, as_json, literal_for, reply_grammar
from omlxd.worker.output_format import OutputFormat
from omlxd.worker.ports import Guide

Array = Any  # mx.array; MLX's stubs are not followed


class GrammarFault(Exception):
    """A token that the grammar does not allow was drawn, or its next step costs too much."""


class Grammars:
    """Of one tokenizer. `vocabulary`: how many logits there are; `ends`: ids that end a turn."""

    def __init__(self, tokenizer: Any, *, vocabulary: int, ends: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._size = max(vocabulary, len(tokenizer))
        self._ends = ends

    @cached_property
    def _vocabulary(self) -> Any:
        """Takes up to a second and a half, so only the first constrained request makes it."""
        return llguidance.hf.from_tokenizer(
            self._tokenizer, n_vocab=self._size, eos_token=sorted(self._ends)
        )

    @cached_property
    def _literal(self) -> Literal:
        """What a grammar takes for special are more tokens than those that are."""
        added = self._tokenizer.added_tokens_decoder.items()
        is_special = self._vocabulary.is_special_token
        return literal_for({str(token): index for index, token in added if is_special(index)})

    def guide(self, rules: ReplyRules, form: OutputFormat) -> Callable[[int], Guide]:
        """(tokens of the prompt) → what keeps a row to the rules. Raises RequestInvalid."""
        try:
            matcher = self._matcher(reply_grammar(rules, form, self._literal))
        except RecursionError:
            raise _refusal(rules.constraint, "is nested too deeply") from None
        if problem := matcher.get_error():
            raise _refusal(*self._located(rules.constraint, _reason(problem)))
        return lambda prompt_tokens: GrammarGuide(
            matcher.deep_copy(), size=self._size, ends=self._ends, seen=prompt_tokens
        )

    def _matcher(self, grammar: str) -> Any:
        return llguidance.LLMatcher(self._vocabulary, grammar, log_level=0)

    def _located(
        self, constraint: Constraint | None, reason: str
    ) -> tuple[Constraint | None, str, str]:
        """With the place inside a schema that is at fault."""
        if constraint is None or constraint.kind != "json_schema":
            return constraint, reason, ""
        return constraint, *self._fault(constraint.value, constraint.value, "", reason)

    def _fault(self, schema: Any, root: Any, place: str, reason: str) -> tuple[str, str]:
        """The innermost part that cannot be compiled by itself, and why."""
        for step, part in _parts(schema):
            named = {key: root[key] for key in ("$defs", "definitions") if key in root}
            whole = {**named, **part} if isinstance(part, Mapping) else part
            problem = self._matcher(f"start: {as_json(whole)}").get_error()
            if problem:
                return self._fault(part, root, f"{place}.{step}", _reason(problem))
        return reason, place


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


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside a schema, and where they stand."""
    if not isinstance(schema, Mapping):
        return
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        parts = schema.get(key)
        if isinstance(parts, Mapping):
            yield from ((f"{key}.{name}", part) for name, part in parts.items())
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        listed = schema.get(key)
        if isinstance(listed, list):
            yield from ((f"{key}[{number}]", part) for number, part in enumerate(listed))
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield key, schema[key]


def _reason(problem: str) -> str:
    """What is wrong, without the copy of the grammar that follows it."""
    said = re.split(r"\n\s+\d+ \|", problem)[0].split("): ", 1)[-1]
    return " ".join(said.removeprefix("failed to compile JSON schema: ").split())


def _refusal(constraint: Constraint | None, reason: str, place: str = "") -> RequestInvalid:
    param = "tools" if constraint is None else f"{constraint.param}{place}"
    return RequestInvalid(f"{param}: cannot be compiled to a grammar: {reason}", param=param)
