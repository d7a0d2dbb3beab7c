"""Replies under a grammar: whatever a model would draw, what comes out has the form asked for."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import (
    Constraint,
    GenerateRequest,
    LiveSettings,
    Thinking,
    ToolChoice,
)
from omlxd.worker.accept import accept
from omlxd.worker.grammar import Grammars
from omlxd.worker.grammar_text import ReplyRules
from omlxd.worker.output_format import CALL_MARKS, OutputFormat
from omlxd.worker.ports import Guide
from omlxd.worker.row_guides import ThinkingBudget
from omlxd.worker.tool_calls.pieces import Arguments, Began, Ended
from omlxd.worker.tool_calls.readers import call_reader
from omlxd.worker.tool_calls.splitter import CallSplitter
from tests.support.models import EOS_TOKENS, VOCABULARY
from tests.support.tokenizers import chat_tokenizer, text_model

TOKENIZER = chat_tokenizer()
GRAMMARS = Grammars(TOKENIZER, vocabulary=VOCABULARY, ends=frozenset(EOS_TOKENS))
PLAIN = OutputFormat()
THINK = OutputFormat(think_start="<think>", think_end="</think>")
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def draw(guide: Guide, *, seed: int, first: str = "", most: int = 400) -> str:
    """What a model without a thought of its own says, after it was made to say `first`."""
    chance = random.Random(seed)
    tokens: list[int] = []
    forced = TOKENIZER.encode(first, add_special_tokens=False)
    for number in range(most):
        logits = guide(mx.array(tokens, dtype=mx.int32), mx.zeros((1, VOCABULARY)))
        allowed = [index for index, value in enumerate(logits[0].tolist()) if value == 0]
        token = forced[number] if number < len(forced) else chance.choice(allowed)
        assert token in allowed
        if token in EOS_TOKENS:
            return str(TOKENIZER.decode(tokens))
        tokens.append(token)
    raise AssertionError(f"no end: {TOKENIZER.decode(tokens)!r}")


def guide_for(form: OutputFormat = PLAIN, **rules: Any) -> Guide:
    return GRAMMARS.guide(ReplyRules(**rules), form)(0)


def schema(value: Any) -> Constraint:
    return Constraint(kind="json_schema", value=value, param="response_format.json_schema.schema")


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_is_kept(seed: int) -> None:
    """The reply is one object that fits, and then ends."""
    person = json.loads(draw(guide_for(constraint=schema(PERSON)), seed=seed))
    assert set(person) == {"name", "age"}
    assert isinstance(person["name"], str)
    assert person["age"] in range(100)


@pytest.mark.parametrize(
    ("constraint", "fits"),
    [
        (Constraint(kind="choice", value=["a/b", 'say "c"']), ["a/b", 'say "c"']),
        (Constraint(kind="regex", value=r"(a/b|c\/d)\n"), ["a/b\n", "c/d\n"]),
        (Constraint(kind="lark", value='start: "x" other\nother: "y" | "z"'), ["xy", "xz"]),
        (schema({"enum": [1, "two"]}), ["1", '"two"']),
        (schema(True), None),
        (Constraint(kind="json_object"), None),
    ],
)
def test_every_kind_of_constraint_is_kept(constraint: Constraint, fits: list[str] | None) -> None:
    """The text is one of those that the constraint allows."""
    start = "{}" if constraint.kind == "json_object" else "1" if fits is None else ""
    said = draw(guide_for(constraint=constraint), seed=1, first=start)
    if fits is None:
        json.loads(said)
    else:
        assert said in fits


@pytest.mark.parametrize(("first", "opened"), [("<think>hm </thin", False), ("hm", True)])
def test_the_answer_is_kept_behind_reasoning(first: str, opened: bool) -> None:
    """Reasoning is free; from its end on, with line breaks at most, there is only the answer."""
    rules = {"in_reasoning": opened, "may_reason": not opened}
    choice = Constraint(kind="choice", value=["yes"])
    said = draw(guide_for(THINK, constraint=choice, **rules), seed=1, first=f"{first}</think>\n\n")
    assert said == f"{first}</think>\n\nyes"
    if not opened:
        assert draw(guide_for(THINK, constraint=choice, **rules), seed=1, first="yes") == "yes"


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "write",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "pattern": "(?=x)y"},
                    "mode": {"enum": ["a", "w"]},
                    "size": {"type": "integer", "minimum": 1, "maximum": 9},
                },
                "required": ["path", "mode"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "ls", "parameters": {}}},
]
TEXT = "a\nb </param> <x> \\ end"


def calls(text: str, form: OutputFormat) -> list[tuple[str, Any]]:
    splitter = CallSplitter(form.calls.start, lambda: call_reader(form, TOOLS))
    found: list[tuple[str, Any]] = []
    name, arguments = "", ""
    for part in splitter.feed(text, final=True):
        match part:
            case Began():
                name, arguments = part.name, ""
            case Arguments():
                arguments += part.text
            case Ended():
                found.append((name, json.loads(arguments)))
    return found


FORCED = {
    "json_tools": '<tool_call>\n{"name": "write", "arguments": {"path": ' + json.dumps(TEXT) + ",",
    "mistral": '[TOOL_CALLS]write[ARGS]{"path": ' + json.dumps(TEXT) + ",",
    "qwen3_coder": f"<tool_call>\n<function=write>\n<parameter=path>\n{TEXT}\n</parameter>\n",
    "glm47": "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>" + TEXT + "</arg_value>\n",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="write">\n<parameter name="path">'
    f"{TEXT}</parameter>\n",
}


@pytest.mark.parametrize("name", sorted(FORCED))
@pytest.mark.parametrize("seed", range(3))
def test_a_call_that_is_required_is_made(name: str, seed: int) -> None:
    """One call that can be read, of a tool that is offered, with arguments that fit; strings are
    what the model says, to the byte.
    """
    form = OutputFormat(tools=name)
    rules = {"tools": TOOLS, "must_call": True, "parallel": False}
    [(called, arguments)] = calls(
        draw(guide_for(form, **rules), seed=seed, first=FORCED[name]), form
    )
    assert called == "write"
    assert arguments["path"] == TEXT
    assert arguments["mode"] in ("a", "w")
    assert arguments.get("size", 1) in range(1, 10)


@pytest.mark.parametrize("name", sorted(CALL_MARKS))
def test_every_format_has_a_grammar(name: str) -> None:
    """It compiles, with and without more calls after the first, and allows no text instead."""
    form = OutputFormat(
        tools=name, dropped=("<|start|>assistant", "<|channel|>final<|message|>", "")
    )
    for parallel in (True, False):
        guide = guide_for(form, tools=TOOLS, must_call=True, parallel=parallel)
        logits = guide(mx.array([], dtype=mx.int32), mx.zeros((1, VOCABULARY)))
        [text] = TOKENIZER.encode("a", add_special_tokens=False)
        assert logits[0, text].item() == -mx.inf


def test_calls_or_an_answer() -> None:
    """With a form for the answer and tools that may be called, either is one."""
    rules = {"constraint": Constraint(kind="choice", value=["yes"]), "tools": TOOLS}
    assert draw(guide_for(**rules), seed=1, first="yes") == "yes"
    said = draw(guide_for(**rules), seed=1, first='<tool_call>\n{"name": "ls", "arguments": {}}\n')
    assert calls(said, PLAIN)[0] == ("ls", {})


def many_levels(depth: int) -> Any:
    value: Any = {"type": "string"}
    for _ in range(depth):
        value = {"type": "object", "properties": {"a": value}}
    return value


@pytest.mark.parametrize(
    ("constraint", "place", "reason"),
    [
        (schema({"type": "nonsense"}), "", "Invalid type: nonsense"),
        (
            schema({"properties": {"a": {"items": {"$ref": "#/$defs/no"}}}}),
            ".properties.a.items",
            "does not exist",
        ),
        (
            schema({"anyOf": [{"type": "null"}, {"pattern": "(open"}]}),
            ".anyOf[1]",
            "unclosed group",
        ),
        (schema({"type": "array", "uniqueItems": True}), "", "uniqueItems"),
        (schema(many_levels(2_000)), "", "too deep"),
        (Constraint(kind="regex", value="(", param="guided_regex"), "", "regex"),
        (Constraint(kind="lark", value="start: nothing", param="guided_grammar"), "", "nothing"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_its_place(
    constraint: Constraint, place: str, reason: str
) -> None:
    """The parameter, the place inside a schema, and why."""
    with pytest.raises(RequestInvalid, match=reason) as refused:
        guide_for(constraint=constraint)
    assert refused.value.param == constraint.param + place


def test_what_is_too_big_is_refused() -> None:
    """Compiling is bounded: a schema of a million parts ends in a refusal, and soon."""
    leaf = {"enum": [f"value {number}" for number in range(200)]}
    middle = {"properties": {f"k{number}": leaf for number in range(50)}}
    with pytest.raises(RequestInvalid, match="too big"):
        guide_for(
            constraint=schema({"properties": {f"k{number}": middle for number in range(100)}})
        )


# ------------------------------------------------------------------ as requests ask for it


def run_guides(**asked: Any) -> list[Guide]:
    request = GenerateRequest(
        request_id="r", model="m", messages=[{"role": "user", "content": "x"}], **asked
    )
    live = LiveSettings()
    [row] = accept(request, model=text_model(window=4096), live=live).rows
    return [make(len(row.prompt)) for make in row.guides]


def test_requests_without_a_form_have_no_guides() -> None:
    """They pay nothing; tools that may be called are no form."""
    assert run_guides() == []
    assert run_guides(tools=TOOLS) == []


@pytest.mark.parametrize(
    "asked",
    [
        {"constraint": Constraint(kind="json_object")},
        {"tools": TOOLS, "tool_choice": ToolChoice(mode="required")},
        {"thinking": Thinking(budget_tokens=5)},
    ],
)
def test_what_is_asked_for_is_a_guide(asked: dict[str, Any]) -> None:
    """One for each thing that has to be kept."""
    assert len(run_guides(**asked)) == 1


def test_where_no_call_is_wanted_its_mark_is_not_drawn() -> None:
    """The tools stay in the prompt, so the conversation keeps its prefix."""
    request = GenerateRequest(
        request_id="r",
        model="m",
        messages=[{"role": "user", "content": "x"}],
        tools=TOOLS,
        tool_choice=ToolChoice(mode="none"),
    )
    [row] = accept(request, model=text_model(window=4096), live=LiveSettings()).rows
    assert row.sampling.logit_bias == {TOKENIZER.convert_tokens_to_ids("<tool_call>"): -100.0}


def spoken(guide: Guide, prompt: Sequence[int], wanted: str, most: int) -> str:
    """A model that wants to say `wanted` again and again, as far as it is let."""
    tokens = list(prompt)
    ids = TOKENIZER.encode(wanted, add_special_tokens=False)
    said = 0
    while len(tokens) - len(prompt) < most:
        logits = guide(mx.array(tokens, dtype=mx.int32), mx.zeros((1, VOCABULARY)))
        forced = mx.argmax(logits[0]).item() if (logits[0] == 0).sum().item() == 1 else None
        tokens.append(ids[said % len(ids)] if forced is None else int(forced))
        said += forced is None
    return str(TOKENIZER.decode(tokens[len(prompt) :]))


def budget_guide(budget: int, *, opened: bool, prompt: Sequence[int]) -> Guide:
    return ThinkingBudget(
        THINK,
        budget=budget,
        closing=TOKENIZER.encode("</think>", add_special_tokens=False),
        text_of=text_model().decoding.of,
        in_reasoning=opened,
        seen=len(prompt),
    )


@pytest.mark.parametrize(
    ("budget", "opened", "wanted", "said"),
    [
        (3, True, "a", "aaa</think>aa"),
        (0, True, "a", "</think>aaaaa"),
        (2, False, "<think>", "<think><think><think></think><think><think>"),
        (2, False, "a", "aaaaaa"),
        (9, True, "a</think>", "a</think>a</think>a</think>"),
    ],
)
def test_a_budget_closes_reasoning(budget: int, opened: bool, wanted: str, said: str) -> None:
    """After so many tokens, whoever opened it; what is closed, or never begun, is left alone."""
    prompt = [5, 6, 7]
    assert spoken(budget_guide(budget, opened=opened, prompt=prompt), prompt, wanted, 6) == said
