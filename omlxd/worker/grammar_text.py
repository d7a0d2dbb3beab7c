"""What a reply may be, as a grammar in the Lark dialect of llguidance.

A reply is reasoning, if the model may think, and then the answer, tool calls, or either. Strings in
arguments are left as free as JSON, or the format's marks, leave them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omlxd.ipc.messages import Constraint
from omlxd.worker.grammar_calls import call_rules, free_up_to
from omlxd.worker.output_format import OutputFormat

# Blanks are as models write them: where any are allowed, a weak model writes nothing else.
_BLANKS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

# A text → an expression: special tokens in it by id, as they have no text to a grammar.
Literal = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRules:
    """`tools`: those that may be called; `must_call`: text is no answer then."""

    constraint: Constraint | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    must_call: bool = False
    parallel: bool = True
    in_reasoning: bool = False  # the prompt has opened it
    may_reason: bool = False


def reply_grammar(rules: ReplyRules, form: OutputFormat, literal: Literal) -> str:
    """The grammar as llguidance takes it. Raises RecursionError on a schema that is too deep."""
    lines = [f"start: {_reasoning(rules, form, literal)} main"]
    if rules.in_reasoning or rules.may_reason:
        lines += _thought(form, literal)
    answers: list[str] = []
    nested: list[dict[str, str]] = []
    if rules.constraint is not None and not rules.must_call:
        answers.append("answer")
        lines.append(f"answer: {_opening(form, literal)} {_answer(rules.constraint)}")
        if rules.constraint.kind == "lark":
            nested.append({"name": "answer", "lark_grammar": str(rules.constraint.value)})
    if rules.tools:
        answers.append("calls")
        lines += call_rules(form, rules.tools, literal, parallel=rules.parallel, as_json=as_json)
    lines.append(f"main: {' | '.join(answers)}")
    return json.dumps({"grammars": [{"lark_grammar": "\n".join(lines)}, *nested]})


def as_json(schema: Any, *, lenient: bool = False) -> str:
    """A JSON schema as an expression. `lenient`: keywords that are not known are passed over."""
    wanted = schema if isinstance(schema, Mapping) else {} if schema else {"not": {}}
    return "%json " + json.dumps({**wanted, "x-guidance": {**_BLANKS, "lenient": lenient}})


def literal_for(special: Mapping[str, int]) -> Literal:
    """`special`: ids of the tokens that are no text to a grammar, by name."""
    names = sorted(special, key=len, reverse=True)
    parts = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None

    def literal(text: str) -> str:
        pieces = [text] if parts is None else parts.split(text)
        return " ".join(
            f"<[{special[piece]}]>" if piece in special else json.dumps(piece, ensure_ascii=False)
            for piece in pieces
            if piece
        )

    return literal


def _reasoning(rules: ReplyRules, form: OutputFormat, literal: Literal) -> str:
    if rules.in_reasoning:
        return "thought"
    return f"({literal(form.think_start)} thought)?" if rules.may_reason else ""


def _thought(form: OutputFormat, literal: Literal) -> list[str]:
    """From behind its opening mark to the line breaks behind its closing one."""
    return [
        "thought: thinking BREAKS?",
        free_up_to("thinking", form.think_end, literal),
        r"BREAKS: /\n{1,2}/",
    ]


def _opening(form: OutputFormat, literal: Literal) -> str:
    """What stands before an answer in formats with channels."""
    if form.tools != "harmony":
        return ""
    start, final, _ = form.dropped
    return f"({literal(start)})? {literal(final)}"


def _answer(constraint: Constraint) -> str:
    match constraint.kind:
        case "json_object":
            return as_json({"type": "object"})
        case "json_schema":
            return as_json(constraint.value)
        case "regex":
            return _regex(str(constraint.value))
        case "choice":
            texts = (json.dumps(text, ensure_ascii=False) for text in constraint.value)
            return f"({' | '.join(texts)})"
        case "lark":
            return "@answer"


def _regex(pattern: str) -> str:
    """Between slashes; those inside are escaped, unless they are already."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    inside = {"/": r"\/", "\n": r"\n"}
    return "/" + "".join(inside.get(part, part) for part in parts) + "/"
