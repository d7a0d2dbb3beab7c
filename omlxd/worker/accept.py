"""One request checked and made ready for the engine. Nothing is refused after this.

It takes about a microsecond per character of the prompt, so it has a thread of its own.

`max_tokens` above what is left of the window, or above the model's `max_output_tokens`, is cut to
it: clients send a constant, and the reply says by its finish reason that it was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from omlxd.errors import ContextOverflow, RequestInvalid
from omlxd.ipc.messages import GenerateRequest, LiveSettings
from omlxd.worker.guides import callable_tools, forbidden_tokens, guides
from omlxd.worker.ports import RowJob
from omlxd.worker.prompt_size import tokens_at_least
from omlxd.worker.text_model import TextModel
from omlxd.worker.text_output import OutputPlan
from omlxd.worker.text_sampling import check_sampling, resolve_sampling

_MAX_CHOICES = 128
_MAX_STOPS = 16
_MAX_STOP_CHARACTERS = 1024
_MAX_TOP_LOGPROBS = 20
_ENDING_TOKENS = 32  # of a prompt, in which its template opens or closes reasoning


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """`rows[i]` is choice `i`; all have the same prompt. No rows: it was only to be counted."""

    rows: Sequence[RowJob]
    prompt_tokens: int
    plan: OutputPlan
    may_log: bool = False  # text of its prompt may be told in explanations


def served_window(model: TextModel, live: LiveSettings) -> int:
    """Tokens: the model's own window, or the smaller one asked for."""
    return min(model.window, live.max_context or model.window)


def accept(request: GenerateRequest, *, model: TextModel, live: LiveSettings) -> AcceptedRequest:
    """Raises RequestInvalid, which names the parameter, or ContextOverflow."""
    _check(request)
    check_sampling(request.sampling, vocabulary=model.vocabulary)
    window = served_window(model, live)
    prompt = _prompt(request, model, live)
    if request.count_only:  # told also where it does not fit: clients shorten by it
        return AcceptedRequest([], len(prompt), OutputPlan())
    room = window - len(prompt)
    if room < 1:
        raise _overflow(request, len(prompt), window=window, live=live)
    plan = _output_plan(request, prompt, model, live)
    row_guides = guides(
        request,
        model,
        in_reasoning=plan.in_reasoning,
        may_reason=_may_reason(request, prompt, model),
    )
    forbidden = dict.fromkeys(forbidden_tokens(request, model), -100.0)
    sampling = structs.replace(
        request.sampling, logit_bias={**request.sampling.logit_bias, **forbidden}
    )
    rows = [
        RowJob(
            request_id=request.request_id,
            index=index,
            prompt=prompt,
            max_tokens=min(room, request.max_tokens or room, live.max_output_tokens or room),
            sampling=resolve_sampling(
                sampling, spec=live.sampling, model=model.sampling, choice=index
            ),
            stop_tokens=frozenset() if request.ignore_eos else model.stop_tokens,
            top_logprobs=request.top_logprobs,
            guides=row_guides,
        )
        for index in range(request.n)
    ]
    return AcceptedRequest(rows, len(prompt), plan, may_log=live.log_prompts)


def _output_plan(
    request: GenerateRequest, prompt: Sequence[int], model: TextModel, live: LiveSettings
) -> OutputPlan:
    is_chat = request.messages is not None
    return OutputPlan(
        form=model.template.form if is_chat else None,
        in_reasoning=is_chat and _opens_reasoning(model, prompt),
        reasoning=live.reasoning,
        tools=callable_tools(request),
        parallel=request.tool_choice.parallel,
        stops=request.stop,
        echo=_echo(request, model),
        continues=not is_chat or request.continue_final,
        has_logprobs=request.top_logprobs is not None,
    )


def _opens_reasoning(model: TextModel, prompt: Sequence[int]) -> bool:
    start = model.template.form.think_start
    return bool(start) and _ending(model, prompt).endswith(start.rstrip())


def _may_reason(request: GenerateRequest, prompt: Sequence[int], model: TextModel) -> bool:
    """Whether the reply may begin with reasoning; a template can have closed it already."""
    form = model.template.form
    if request.messages is None or request.continue_final or not form.think_start:
        return False
    is_off = request.thinking.enabled is False or (
        request.template_kwargs.get("enable_thinking") is False
    )
    return not is_off and not _ending(model, prompt).endswith(form.think_end)


def _ending(model: TextModel, prompt: Sequence[int]) -> str:
    return model.decoding.text([*prompt[-_ENDING_TOKENS:]]).rstrip()


def _check(request: GenerateRequest) -> None:
    if not 1 <= request.n <= _MAX_CHOICES:
        raise RequestInvalid(f"n is {request.n}; it must be 1 to {_MAX_CHOICES}", param="n")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise RequestInvalid(
            f"max_tokens is {request.max_tokens}; it must be at least 1", param="max_tokens"
        )
    if len(request.stop) > _MAX_STOPS:
        raise RequestInvalid(
            f"stop holds {len(request.stop)} strings; at most {_MAX_STOPS} are served",
            param="stop",
        )
    if not all(0 < len(stop) <= _MAX_STOP_CHARACTERS for stop in request.stop):
        raise RequestInvalid(
            f"every stop string must have 1 to {_MAX_STOP_CHARACTERS} characters", param="stop"
        )
    if not 0 <= (request.top_logprobs or 0) <= _MAX_TOP_LOGPROBS:
        raise RequestInvalid(
            f"top_logprobs is {request.top_logprobs}; it must be 0 to {_MAX_TOP_LOGPROBS}",
            param="top_logprobs",
        )
    if (request.messages is None) == (request.prompt is None):
        raise RequestInvalid("send either messages or a prompt, not both", param="messages")
    if request.echo and request.prompt is None:
        raise RequestInvalid("only a prompt can be echoed, messages cannot", param="echo")
    if request.echo and request.top_logprobs is not None:
        raise RequestInvalid(
            "echo with log-probabilities is not served: those of the prompt are not computed",
            param="echo",
        )


def _prompt(request: GenerateRequest, model: TextModel, live: LiveSettings) -> list[int]:
    """Raises before it tokenises, or renders, what is far too long."""
    window = served_window(model, live)

    def count(text: str) -> int:
        return len(model.tokenizer.encode(text, add_special_tokens=False))

    def check_size(text: str) -> None:
        if (tokens := tokens_at_least(text, count, window=window)) is not None:
            raise _overflow(request, tokens, window=window, live=live, at_least=True)

    if request.messages is not None:
        if len(request.messages) > window:  # each is a token or more
            least = len(request.messages)
            raise _overflow(request, least, window=window, live=live, at_least=True)
        prompt = model.template.encode(
            request.messages,
            tools=request.tools,
            template_kwargs=_template_kwargs(request, live),
            continue_final=request.continue_final,
            check_size=check_size,
        )
    elif isinstance(request.prompt, str):
        check_size(request.prompt)
        prompt = model.tokenizer.encode(request.prompt)
    else:
        prompt = list(request.prompt or ())
        unknown = [token for token in prompt if not 0 <= token < model.vocabulary]
        if unknown:
            raise RequestInvalid(
                f"prompt holds token {unknown[0]}; this model's ids are 0 to"
                f" {model.vocabulary - 1}",
                param="prompt",
            )
    if prompt:
        return prompt
    if model.tokenizer.bos_token_id is None:
        raise RequestInvalid(
            "the prompt is empty, and this model has no token to begin a text with",
            param="prompt" if request.messages is None else "messages",
        )
    return [model.tokenizer.bos_token_id]


def _template_kwargs(request: GenerateRequest, live: LiveSettings) -> dict[str, Any]:
    """The model's settings, then how to think, then what the request says by name; the last counts.

    Templates know the switch under two names.
    """
    thinking = request.thinking
    asked: dict[str, Any] = {}
    if thinking.enabled is not None:
        asked |= {"enable_thinking": thinking.enabled, "thinking": thinking.enabled}
    if thinking.effort is not None:
        asked["reasoning_effort"] = thinking.effort
    return {**live.chat_template_kwargs, **asked, **request.template_kwargs}


def _overflow(
    request: GenerateRequest,
    tokens: int,
    *,
    window: int,
    live: LiveSettings,
    at_least: bool = False,
) -> ContextOverflow:
    """Names the window that the client was told of, so that it shortens to that."""
    return ContextOverflow(
        f"the prompt is {'at least ' * at_least}{tokens} tokens and a reply needs at least one;"
        f" the window of {request.model} is {window} tokens",
        param="prompt" if request.messages is None else "messages",
        prompt_tokens=tokens,
        max_context=min(window, int(window * live.context_scale_factor)),
        at_least=at_least,
    )


def _echo(request: GenerateRequest, model: TextModel) -> str:
    if not request.echo:
        return ""
    if isinstance(request.prompt, str):
        return request.prompt
    return model.decoding.text(list(request.prompt or ()))
