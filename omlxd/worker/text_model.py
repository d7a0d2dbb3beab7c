"""What the text side knows of one model: tokenizer, template, window, ends of turn, defaults.

Reads the model folder; needs no weights, so requests can be accepted while they load.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from omlxd.ipc.messages import LoadSettings, Sampling
from omlxd.models.kinds import NESTED_CONFIGS, max_context
from omlxd.worker.detokenize import Decoding, special_tokens
from omlxd.worker.grammar import Grammars
from omlxd.worker.ports import LoadError
from omlxd.worker.template import ChatTemplate
from omlxd.worker.text_sampling import model_sampling

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
    grammars: Grammars
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
        # The first call turns off the truncation and padding that the file may ask for. Later ones
        # change nothing, so that one thread can encode while another decodes.
        tokenizer.encode("a")
    except Exception as error:  # the library raises whatever its many classes do
        raise LoadError(
            f"the tokenizer of {settings.model_id} in {folder} cannot be loaded: {error}",
            permanent=True,
        ) from error
    if settings.chat_template is not None:
        tokenizer.chat_template = settings.chat_template
    nested = (config.get(key) for key in NESTED_CONFIGS)
    configs = [config, *(part for part in nested if isinstance(part, dict))]
    stop_tokens = _stop_tokens([generation, *configs], tokenizer.eos_token_id)
    vocabulary = next(_named(configs, "vocab_size"), len(tokenizer))
    template = ChatTemplate(tokenizer, turn_ends=stop_tokens)
    window = max_context(config) or min(int(tokenizer.model_max_length), _NO_WINDOW)
    tokenizer.model_max_length = _NO_LENGTH  # the served window is checked, with both numbers
    return TextModel(
        tokenizer=tokenizer,
        template=template,
        decoding=Decoding(tokenizer, shown=template.form.shown(special_tokens(tokenizer).values())),
        grammars=Grammars(tokenizer, vocabulary=vocabulary, ends=stop_tokens),
        window=window,
        vocabulary=vocabulary,
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


def _named(configs: Sequence[Mapping[str, Any]], key: str) -> Iterator[Any]:
    return (config[key] for config in configs if config.get(key) is not None)


def _stop_tokens(configs: Sequence[Mapping[str, Any]], tokenizer_end: int | None) -> frozenset[int]:
    """The first file that names ends of turn counts, and the tokenizer's own always does."""
    ends: Any = next(_named(configs, "eos_token_id"), [])
    named = ends if isinstance(ends, list) else [ends]
    return frozenset(end for end in (*named, tokenizer_end) if isinstance(end, int))
