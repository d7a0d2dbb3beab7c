"""Grammars made ready for rows.

A grammar is compiled when its request is accepted, so that a bad one is refused there. llguidance
bounds what compiling and one token may cost; what exceeds that is refused, or fails its row.
It is imported with the first constrained request, and MLX by the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Constraint
from omlxd.worker.grammar_text import Literal, ReplyRules, as_json, literal_for, reply_grammar
from omlxd.worker.output_format import OutputFormat
from omlxd.worker.ports import Guide


class Grammars:
    """Of one tokenizer. `vocabulary`: how many logits there are; `ends`: ids that end a turn."""

    def __init__(self, tokenizer: Any, *, vocabulary: int, ends: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._size = max(vocabulary, len(tokenizer))
        self._ends = ends

    @cached_property
    def _vocabulary(self) -> Any:
        """Takes up to a second and a half, so only the first constrained request makes it."""
        import llguidance.hf

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

        def make(prompt_tokens: int) -> Guide:
            from omlxd.worker.row_guides import GrammarGuide

            return GrammarGuide(
                matcher.deep_copy(), size=self._size, ends=self._ends, seen=prompt_tokens
            )

        return make

    def _matcher(self, grammar: str) -> Any:
        import llguidance

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
