"""Sampling values: checked, and decided in the order request, spec, model, omlxd's default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Sampling
from omlxd.worker.ports import ResolvedSampling

# name → lowest, highest; the lowest of a repetition penalty is open.
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "top_k": (-1, 2**31),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, 10.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
_BIAS_RANGE = (-100.0, 100.0)
_MODEL_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_SEEDS = 2**63


def check_sampling(sampling: Sampling, *, vocabulary: int) -> None:
    """Raises RequestInvalid naming the parameter. `vocabulary`: how many token ids there are."""
    for name, (low, high) in _RANGES.items():
        value = getattr(sampling, name)
        if value is not None and not low <= value <= high:  # NaN is never between
            raise RequestInvalid(
                f"{name} is {value}; it must be between {low:g} and {high:g}", param=name
            )
    if sampling.repetition_penalty == 0:
        raise RequestInvalid(
            "repetition_penalty is 0; it must be above 0, and 1 turns it off",
            param="repetition_penalty",
        )
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < vocabulary:
            raise RequestInvalid(
                f"logit_bias names token {token}; this model's ids are 0 to {vocabulary - 1}",
                param="logit_bias",
            )
        if not _BIAS_RANGE[0] <= bias <= _BIAS_RANGE[1]:
            raise RequestInvalid(
                f"logit_bias of token {token} is {bias}; it must be between -100 and 100",
                param="logit_bias",
            )


def model_sampling(generation_config: Mapping[str, Any]) -> Sampling:
    """The defaults a model's generation_config.json names; values out of range are not used."""
    usable: dict[str, Any] = {}
    for name in _MODEL_KEYS:
        value = generation_config.get(name)
        low, high = _RANGES[name]
        if isinstance(value, int | float) and math.isfinite(value) and low <= value <= high:
            usable[name] = value
    return Sampling(**usable)


def resolve_sampling(
    request: Sampling, *, spec: Sampling, model: Sampling, choice: int
) -> ResolvedSampling:
    """Every value decided. With a seed, choice `i` draws from seed + i."""
    decided: dict[str, Any] = {}
    for name in structs.asdict(request):
        values = (getattr(source, name) for source in (request, spec, model))
        value = next((value for value in values if value not in (None, {})), None)
        if value is not None:
            decided[name] = value
    if decided.get("top_p") == 0:  # a nucleus of nothing but the best token
        decided |= {"top_p": 1.0, "temperature": 0.0}
    if decided.get("top_k") == -1:  # another way to write off
        decided["top_k"] = 0
    if "seed" in decided:
        decided["seed"] = (decided["seed"] + choice) % _SEEDS
    return ResolvedSampling(**decided)
