"""Parameters that both OpenAI completion routes share: their limits, and what is refused.

A parameter that changes the result is honoured or refused with its name. Known keys without a
meaning here, and unknown ones, are let through. `null` is the same as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from omlxd.api.wire.wording import refusal
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Sampling, Thinking

# ------------------------------------------------------------------ limits

MAX_CHOICES = 8  # n
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_TOP_LOGPROBS = 20
MAX_PROMPTS = 64  # prompts of one /v1/completions request
MAX_OUTPUT_TOKENS = 1 << 22  # more than any window; nonsense is refused, the rest is cut to fit

Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(ge=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=1 << 20)]  # -1 and 0 turn it off
MinP = Annotated[float, Meta(ge=0, le=1)]
Seed = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
RepetitionPenalty = Annotated[float, Meta(gt=0, le=10)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
LogitBias = Annotated[dict[TokenId, Bias], Meta(max_length=1024)]
Budget = Annotated[int, Meta(ge=0, le=MAX_OUTPUT_TOKENS)]  # of reasoning; 0 turns it off
OutputTokens = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)]
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
TopLogprobs = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]
StopText = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
Stop = StopText | Annotated[list[StopText], Meta(max_length=MAX_STOPS)]


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class SharedParams(Struct, frozen=True, kw_only=True):
    """Keys of both routes, with their types and limits."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    logit_bias: LogitBias = {}
    max_tokens: OutputTokens | None = None
    n: Choices = 1
    stop: Stop = []
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    ignore_eos: bool = False

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options.include_usage)

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop

    def sampling(self) -> Sampling:
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=None if self.top_k is None else max(0, self.top_k),
            min_p=self.min_p,
            # Engines take unsigned seeds; one seed still always gives one result.
            seed=None if self.seed is None else self.seed % (1 << 63),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=self.logit_bias,
        )


Params = TypeVar("Params", bound=SharedParams)

# Change the result, and nothing here does them: refused, unless falsy or this neutral value. The
# fine settings of a sampler (dry_base, xtc_threshold, mirostat_tau …) mean nothing without the
# switch that is listed here, and some clients always send them: they are let through.
UNSUPPORTED: Mapping[str, Any] = {
    "allowed_token_ids": None,
    "audio": None,
    "bad_words": None,
    "banned_tokens": None,
    "cfg_scale": 1,
    "chat_template": None,
    "dry_multiplier": None,
    "dynatemp_range": None,
    "encoder_repetition_penalty": 1,
    "epsilon_cutoff": None,
    "eta_cutoff": None,
    "grammar": None,
    "guidance_scale": 1,
    "include_stop_str_in_output": None,
    "json_schema": None,
    "length_penalty": 1,
    "logits_processors": None,
    "min_length": None,
    "min_tokens": None,
    "mirostat": None,
    "mirostat_mode": None,
    "n_predict": -1,
    "negative_prompt": None,
    "no_repeat_ngram_size": None,
    "num_beams": 1,
    "num_predict": -1,
    "penalty_alpha": None,
    "prompt_logprobs": None,
    "repeat_last_n": None,
    "repeat_penalty": 1,
    "repetition_context_size": None,
    "repetition_penalty_range": None,
    "smoothing_factor": None,
    "stop_token_ids": None,
    "suffix": None,
    "tfs": 1,
    "tfs_z": 1,
    "top_a": None,
    "top_n_sigma": -1,
    "truncate_prompt_tokens": None,
    "typical": 1,
    "typical_p": 1,
    "use_beam_search": None,
    "web_search_options": None,
    "xtc_probability": None,
}
_THINKS = {
    "enabled": True,
    "adaptive": True,
    "between_tools": True,
    "between-tools": True,
    "disabled": False,
}
ALWAYS_ON = ("add_generation_prompt", "skip_special_tokens")  # only false would change the result


def read(body: Mapping[str, Any], params: type[Params]) -> Params:
    """The typed parameters of a body; raises RequestInvalid that names the offending one."""
    refuse_unsupported(body)
    try:
        return msgspec.convert(body, params, str_keys=True)
    except msgspec.ValidationError as error:
        raise refusal(str(error), body) from None


def flatten(body: Mapping[str, Any]) -> dict[str, Any]:
    """`extra_body` unpacked (clients nest it by mistake) and nulls dropped; the top level wins."""
    extra = body.get("extra_body")
    if extra is not None and not isinstance(extra, Mapping):
        raise RequestInvalid("extra_body: send a JSON object.", param="extra_body")
    merged = {**(extra or {}), **body}
    return {key: value for key, value in merged.items() if value is not None}


def thinking(effort: str | None) -> Thinking:
    """A `reasoning_effort`: `none` turns reasoning off, any other turns it on."""
    if effort is None:
        return Thinking()
    return Thinking(enabled=False) if effort == "none" else Thinking(enabled=True, effort=effort)


def thinks(kind: str) -> bool:
    """A `thinking.type`, of either family. Raises RequestInvalid."""
    if kind not in _THINKS:
        raise RequestInvalid(
            f"thinking.type: {kind!r} is not one of {', '.join(_THINKS)}.", param="thinking.type"
        )
    return _THINKS[kind]


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    for name, neutral in UNSUPPORTED.items():
        if (value := body.get(name)) and value != neutral:
            raise not_in_this_version(name)
    for name in ALWAYS_ON:
        if body.get(name) is False:
            raise not_in_this_version(name, "false")


def not_in_this_version(name: str, what: str = "") -> RequestInvalid:
    subject = f"{name}: {what}" if what else name
    return RequestInvalid(f"{subject} is not in this version; leave it out.", param=name)
