"""What a request asks of its reply beyond text: which guides its rows get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import GenerateRequest
from omlxd.worker.grammar_text import ReplyRules
from omlxd.worker.output_format import OutputFormat
from omlxd.worker.ports import Guide
from omlxd.worker.text_model import TextModel

MakeGuide = Callable[[int], Guide]


def callable_tools(request: GenerateRequest) -> list[dict[str, Any]]:
    """The tools that a reply may call."""
    choice = request.tool_choice
    if request.messages is None or choice.mode == "none":
        return []
    tools = [*request.tools, *request.deferred_tools]
    if not choice.names:
        return tools
    return [tool for tool in tools if tool["function"]["name"] in choice.names]


def guides(
    request: GenerateRequest, model: TextModel, *, in_reasoning: bool, may_reason: bool
) -> list[MakeGuide]:
    """In the order in which they are to be applied. Raises RequestInvalid."""
    is_chat = request.messages is not None
    form = model.template.form if is_chat else OutputFormat()
    made: list[MakeGuide] = []
    rules = ReplyRules(
        constraint=request.constraint,
        tools=callable_tools(request),
        must_call=request.tool_choice.mode == "required",
        parallel=request.tool_choice.parallel,
        in_reasoning=in_reasoning,
        may_reason=may_reason,
    )
    if rules.constraint is not None or (rules.must_call and rules.tools):
        _check(request, model)
        made.append(model.grammars.guide(rules, form))
    budget = request.thinking.budget_tokens
    if budget is not None and form.think_start:
        made.append(_budget(budget, form, model, in_reasoning=in_reasoning))
    return made


def forbidden_tokens(request: GenerateRequest, model: TextModel) -> Sequence[int]:
    """The mark that opens a call, if it is one token, where no call is wanted."""
    if request.messages is None or request.tool_choice.mode != "none" or not request.tools:
        return ()
    ids = model.tokenizer.encode(model.template.form.calls.start, add_special_tokens=False)
    return ids if len(ids) == 1 else ()


def _check(request: GenerateRequest, model: TextModel) -> None:
    param = request.constraint.param if request.constraint is not None else "tool_choice"
    if request.ignore_eos or not model.stop_tokens:
        raise RequestInvalid(
            f"{param}: a reply that has a form has an end; leave ignore_eos out", param=param
        )


def _budget(budget: int, form: OutputFormat, model: TextModel, *, in_reasoning: bool) -> MakeGuide:
    closing = model.tokenizer.encode(form.think_end, add_special_tokens=False)

    def make(prompt_tokens: int) -> Guide:
        from omlxd.worker.row_guides import ThinkingBudget  # with MLX, which is the engine's

        return ThinkingBudget(
            form,
            budget=budget,
            closing=closing,
            text_of=model.decoding.of,
            in_reasoning=in_reasoning,
            seen=prompt_tokens,
        )

    return make
