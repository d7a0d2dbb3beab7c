"""POST /v1/completions: raw prompts, one or many → one object or a stream of text chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omlxd.api.wire import openai_params as params
from omlxd.api.wire import sse, structure
from omlxd.api.wire.chat_render import finish_reason, floor, usage_object
from omlxd.api.wire.dialect import Call, Dialect, Job, require_generating
from omlxd.api.wire.errors import openai_error
from omlxd.api.wire.fold import Fold
from omlxd.errors import OmlxError, RequestInvalid
from omlxd.ipc.messages import (
    Completed,
    Delta,
    Event,
    Finished,
    GenerateRequest,
    TokenLogprob,
)

API = "completions"
_encode = msgspec.json.encode
DEFAULT_MAX_TOKENS = 16  # the API's own default on this route


class CompletionParams(params.SharedParams, frozen=True, kw_only=True):
    echo: bool = False
    logprobs: params.TopLogprobs | None = None
    best_of: params.Choices | None = None


def parse(body: Mapping[str, Any], call: Call) -> Job:
    """One request per prompt. Raises RequestInvalid."""
    require_generating(call.model)
    body = params.flatten(body)
    asked = params.read(body, CompletionParams)
    if asked.best_of not in (None, asked.n):
        raise params.not_in_this_version("best_of", "a value other than n")
    if asked.echo and asked.logprobs is not None:
        raise params.not_in_this_version("logprobs", "log-probabilities of an echoed prompt")
    prompts = _prompts(body.get("prompt"))
    requests = tuple(
        GenerateRequest(
            request_id=call.request_id if len(prompts) == 1 else f"{call.request_id}-{number}",
            model=call.model.id,
            api=API,
            prompt=prompt,
            echo=asked.echo,
            sampling=asked.sampling(),
            max_tokens=asked.max_tokens or DEFAULT_MAX_TOKENS,
            stop=asked.stops,
            n=asked.n,
            top_logprobs=asked.logprobs,
            constraint=structure.of_body(body),
            ignore_eos=asked.ignore_eos,
        )
        for number, prompt in enumerate(prompts)
    )
    renderer = CompletionRenderer(call, include_usage=asked.include_usage)
    return Job(requests=requests, n=asked.n, stream=asked.stream, renderer=renderer)


DIALECT = Dialect(name=API, parse=parse)


class CompletionRenderer:
    """Chunks of one answer; `text_offset` of log-probabilities counts on from chunk to chunk."""

    def __init__(self, call: Call, *, include_usage: bool) -> None:
        self._identity = {
            "id": f"cmpl-{call.request_id.removeprefix('req_')}",
            "object": "text_completion",
            "created": call.created,
            "model": call.model.id,
        }
        self._head = b"data: " + _encode(self._identity)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._include_usage = include_usage
        self._offsets: dict[int, int] = {}

    def event(self, event: Event) -> bytes:
        if isinstance(event, Delta):
            logprobs = b"null"
            if event.logprobs is not None:
                start = self._offsets.get(event.index, 0)
                logprobs = _encode(_logprobs(event.logprobs, start))
                self._offsets[event.index] = start + _num_chars(event.logprobs)
            return self._chunk(event.index, _encode(event.text), logprobs, b"null")
        if isinstance(event, Finished):
            reason = _encode(finish_reason(event.reason))
            return self._chunk(event.index, b'""', b"null", reason)
        if isinstance(event, Completed):
            usage = b""
            if self._include_usage:
                usage = self._head + b'],"usage":' + _encode(usage_object(event.usage)) + b"}\n\n"
            return usage + sse.DONE
        return b""

    def failure(self, error: OmlxError) -> bytes:
        return sse.data(openai_error(error)) + sse.DONE

    def result(self, fold: Fold) -> bytes:
        choices = [
            {
                "index": index,
                "text": choice.text,
                "logprobs": None if choice.logprobs is None else _logprobs(choice.logprobs, 0),
                "finish_reason": finish_reason(choice.reason),
            }
            for index, choice in enumerate(fold.choices)
        ]
        return _encode({**self._identity, "choices": choices, "usage": usage_object(fold.usage)})

    def _chunk(self, index: int, text: bytes, logprobs: bytes, reason: bytes) -> bytes:
        choice = b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}'
        return self._head + choice % (index, text, logprobs, reason) + self._tail


def _num_chars(tokens: list[TokenLogprob]) -> int:
    return sum(len(token.token) for token in tokens)


def _logprobs(tokens: list[TokenLogprob], start: int) -> dict[str, Any]:
    """The route's own shape: four lists of equal length."""
    offsets = []
    for token in tokens:
        offsets.append(start)
        start += len(token.token)
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [floor(token.logprob) for token in tokens],
        "top_logprobs": [
            {text: floor(logprob) for text, logprob, _ in token.top} for token in tokens
        ],
        "text_offset": offsets,
    }


def _prompts(prompt: Any) -> list[str | list[int]]:
    """A string, a list of strings, token ids, or a list of lists of token ids."""
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise RequestInvalid(
            "prompt: send a string, a list of strings, token ids, or a list of lists of them.",
            param="prompt",
        )
    if all(_is_token(entry) for entry in prompt):
        return [prompt]
    if len(prompt) > params.MAX_PROMPTS:
        raise RequestInvalid(
            f"prompt: at most {params.MAX_PROMPTS} prompts in one request, got {len(prompt)}.",
            param="prompt",
        )
    for number, entry in enumerate(prompt):
        tokens = isinstance(entry, list) and entry and all(_is_token(token) for token in entry)
        if type(entry) is not type(prompt[0]) or not (isinstance(entry, str) or tokens):
            raise RequestInvalid(
                f"prompt[{number}]: send strings, or lists of token ids, not a mix.",
                param=f"prompt[{number}]",
            )
    return prompt


def _is_token(entry: Any) -> bool:
    return isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < 1 << 31
