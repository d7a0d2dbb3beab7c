"""Weights in, and what a model's caches can do: found out at load, never inside a step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from omlxd.ipc.messages import LoadSettings
from omlxd.sched.footprint import KvCost
from omlxd.sched.rows import RowKey
from omlxd.worker.generators import BatchLane
from omlxd.worker.ports import LoadError, ResolvedSampling, RowJob
from omlxd.worker.sampling import shared_sampler

PROBE_TOKENS = 8
BATCH_METHODS = ("merge", "extract", "filter", "extend")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model whose parameters are evaluated in this thread."""

    model: Any
    weights_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    vocabulary: int  # token ids are below this
    cost: KvCost
    batches: bool
    batch_reason: str = ""  # why not


def load_weights(load: LoadSettings) -> Loaded:
    """Load and evaluate; raises LoadError."""
    folder = Path(load.path)
    refuse_remote_code(folder, trusted=load.trust_remote_code)
    try:
        model, _ = load_model(folder, trust_remote_code=load.trust_remote_code)
        mx.eval(model.parameters())
    except Exception as error:
        raise LoadError(
            f"{load.model_id}: loading {folder} failed: {type(error).__name__}: {error}",
            permanent=not _may_pass(error),
        ) from error
    weights_bytes = sum(value.nbytes for _, value in tree_flatten(model.parameters()))
    return Loaded(model, weights_bytes)


def _may_pass(error: Exception) -> bool:
    """Short memory and failing disks come and go; everything else is in the files."""
    if isinstance(error, RuntimeError):  # MLX's own, also when it cannot allocate
        return not str(error).startswith("[load")
    return isinstance(error, MemoryError | OSError) and not isinstance(error, FileNotFoundError)


def refuse_remote_code(folder: Path, *, trusted: bool) -> None:
    """Raise LoadError if the folder asks for its own Python to be run and nobody allowed it."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise LoadError(f"{folder / 'config.json'}: {error}", permanent=True) from error
    asks = [key for key in ("model_file", "auto_map") if config.get(key)]
    if asks and not trusted:
        raise LoadError(
            f"{folder / 'config.json'} names Python code to run ({asks[0]}); read that code, then"
            " set trust_remote_code = true for this model",
            permanent=True,
        )


def probe_abilities(model: Any) -> Abilities:
    """Run a few tokens, alone and in a batch. It also compiles what the first request would."""
    cache = make_prompt_cache(model)
    logits = model(mx.array([[0] * PROBE_TOKENS]), cache=cache)[:, -1, :]
    mx.eval(logits, [each.state for each in cache])
    vocabulary = logits.shape[-1]
    for rows in (1, 2):  # drawing is compiled once for one row and once for several
        mx.eval(shared_sampler(0.5, 0.5, 0, 0.0)(mx.zeros((rows, vocabulary))))
    reason = _missing_methods(cache) or _round_trip_failure(model)
    return Abilities(
        vocabulary=vocabulary,
        cost=_kv_cost(cache),
        batches=not reason,
        batch_reason=reason,
    )


def _leaves(cache: list[Any]) -> Iterator[Any]:
    for each in cache:
        if hasattr(each, "caches"):
            yield from _leaves(each.caches)
        else:
            yield each


def _missing_methods(cache: list[Any]) -> str:
    for leaf in _leaves(cache):
        if not hasattr(leaf, "merge"):
            return f"{type(leaf).__name__} has no merge"
        merged = leaf.merge([leaf])
        missing = [name for name in BATCH_METHODS[1:] if not hasattr(merged, name)]
        if missing:
            return f"{type(merged).__name__} has no {missing[0]}"
    return ""


def _round_trip_failure(model: Any) -> str:
    """Ragged prompts together, one joining late, one leaving early; empty if all went well."""
    lane = BatchLane(model, prefill_step=PROBE_TOKENS)
    keys = [RowKey("probe", index) for index in range(3)]
    try:
        for key, tokens in zip(keys[:2], (PROBE_TOKENS, 3), strict=True):
            lane.insert(_probe_job(key, tokens), [])
        drawn = _probe_steps(lane, 3)
        lane.insert(_probe_job(keys[2], 5), [])
        drawn |= _probe_steps(lane, 2)
        lane.remove([keys[0]])
        drawn |= _probe_steps(lane, 1)
    except Exception as error:
        return f"its caches fail in a batch: {error}"
    finally:
        lane.close()
    missing = [key.index for key in keys if key not in drawn]
    return f"row {missing[0]} of a trial batch drew nothing" if missing else ""


def _probe_steps(lane: BatchLane, count: int) -> set[RowKey]:
    drawn: set[RowKey] = set()
    for _ in range(count):
        outcome = lane.step(PROBE_TOKENS)
        if outcome.fault is not None:
            raise outcome.fault.error
        drawn |= {each.key for each in outcome.drawn}
    return drawn


def _probe_job(key: RowKey, tokens: int) -> RowJob:
    return RowJob(
        request_id=key.request_id,
        index=key.index,
        prompt=[0] * tokens,
        max_tokens=PROBE_TOKENS,
        sampling=ResolvedSampling(temperature=0),
        stop_tokens=frozenset(),
    )


def _kv_cost(cache: list[Any]) -> KvCost:
    """From one row's caches after a short prompt: arrays (1, heads, tokens, width) grow."""
    per_token = per_row = 0
    windows: list[tuple[int, int]] = []
    for leaf in _leaves(cache):
        keys = getattr(leaf, "keys", None)
        if keys is None or isinstance(keys, (tuple, list)) or keys.ndim != 4:
            per_row += leaf.nbytes
            continue
        each = leaf.nbytes // keys.shape[2]
        window = getattr(leaf, "max_size", None) or getattr(leaf, "chunk_size", None)
        if window:
            windows.append((each, window))
        else:
            per_token += each
    return KvCost(per_token=per_token, windows=tuple(windows), per_row=per_row)
