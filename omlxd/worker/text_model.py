"""What the text side knows of one model: tokenizer, template, window, ends of turn, defaults.

Reads the model folder; needs no weights, so requests can be accepted while they load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from omlxd.ipc.messages import LoadSettings, Sampling
from omlxd.worker.detokenize import Decoding
from omlxd.worker.ports import LoadError
from omlxd.worker.template import ChatTemplate
from omlxd.worker.text_sampling import model_sampling

# Names that config.json files use for the window, in the order they are believed.
_WINDOW_KEYS = (
    "max_position_embeddings",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_positions",
    "n_ctx",
)
# Served when a model names no window: recurrent models have none.
_NO_WINDOW = 1_048_576
# What the library says for "no length known".
_NO_LENGTH = 10**30


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """Everything that turns requests into tokens and tokens into text."""

    tokenizer: Any  # of transformers
    template: ChatTemplate
    decoding: Decoding
    window: int  # tokens, the model's own
    vocabulary: int  # token ids are below this
    stop_tokens: frozenset[int]
    sampling: Sampling  # defaults from generation_config.json


def load_text_model(settings: LoadSettings) -> TextModel:
    """Raises LoadError. Runs code of the model folder only with `trust_remote_code`."""
    folder = Path(settings.path)
    config = _read_json(folder / "config.json")
    generation = _read_json(folder / "generation_config.json")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=settings.trust_remote_code, local_files_only=True
        )
    except Exception as error:  # the library raises whatever its many classes do
        raise LoadError(
            f"the tokenizer of {settings.model_id} in {folder} cannot be loaded: {error}",
            permanent=True,
        ) from error
    if settings.chat_template is not None:
        tokenizer.chat_template = settings.chat_template
    text_config = config.get("text_config") or {}
    stop_tokens = _stop_tokens(generation, config, text_config, tokenizer.eos_token_id)
    window = _window(config, text_config, tokenizer.model_max_length)
    tokenizer.model_max_length = _NO_LENGTH  # the served window is checked, with both numbers
    return TextModel(
        tokenizer=tokenizer,
        template=ChatTemplate(tokenizer, turn_ends=stop_tokens),
        decoding=Decoding(tokenizer),
        window=window,
        vocabulary=max(len(tokenizer), *_sizes(config, text_config)),
        stop_tokens=stop_tokens,
        sampling=model_sampling(generation),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read: {error}", permanent=True) from error
    if not isinstance(value, dict):
        raise LoadError(f"{path} holds no JSON object", permanent=True)
    return value


def _window(
    config: Mapping[str, Any], text_config: Mapping[str, Any], tokenizer_length: float
) -> int:
    for source in (text_config, config):
        for key in _WINDOW_KEYS:
            value = source.get(key)
            if isinstance(value, int) and value > 0:
                return value
    return min(int(tokenizer_length), _NO_WINDOW)


def _sizes(*configs: Mapping[str, Any]) -> list[int]:
    sizes = (config.get("vocab_size") for config in configs)
    return [0, *(size for size in sizes if isinstance(size, int))]


def _stop_tokens(
    generation: Mapping[str, Any],
    config: Mapping[str, Any],
    text_config: Mapping[str, Any],
    tokenizer_end: int | None,
) -> frozenset[int]:
    """generation_config.json is newer than config.json where both name ends of turn."""
    for source in (generation, config, text_config):
        ends = source.get("eos_token_id")
        if ends is not None:
            break
    named = ends if isinstance(ends, list) else [ends]
    return frozenset(end for end in (*named, tokenizer_end) if isinstance(end, int))
