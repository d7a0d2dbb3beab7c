"""Embedding models: the library's encoders, pooled as the model's own files say.

Vectors have unit length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_vlm.embedding_loader import load_embedding_model
from mlx_vlm.models.pooling import read_pooling_config
from transformers import AutoTokenizer

from omlxd.errors import EngineFailed, RequestInvalid
from omlxd.ipc.messages import LoadSettings
from omlxd.ipc.vectors import EmbedRequest, Vector
from omlxd.models.kinds import max_context
from omlxd.worker.ports import LoadError
from omlxd.worker.vector_ports import Row, VectorRequest

_NO_LENGTH = 10**9  # what a tokenizer says that knows no limit is far above
_SMALLEST = 1e-12


class EmbeddingModel:
    """Implements `vector_ports.VectorModel`."""

    def __init__(self, model: Any, tokenizer: Any, *, limit: int, vocabulary: int) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._vocabulary = vocabulary
        self.max_context = limit
        self.weights_bytes = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
        self._before, self._behind = _special_tokens(tokenizer)
        pad = tokenizer.pad_token_id
        self._pad = 0 if pad is None else int(pad)

    def rows(self, request: VectorRequest) -> list[Row]:
        if not isinstance(request, EmbedRequest):
            raise RequestInvalid("this model embeds, it does not rank", param="model")
        return [
            self._row(value, f"input[{index}]", truncate=request.truncate)
            for index, value in enumerate(request.inputs)
        ]

    def compute(self, rows: Sequence[Row]) -> list[list[float]]:
        longest = max(map(len, rows))
        ids = mx.array([[*row, *[self._pad] * (longest - len(row))] for row in rows])
        mask = mx.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        embedded = self._model(ids, attention_mask=mask).text_embeds
        values = np.array(embedded.astype(mx.float32))
        return [row.tolist() for row in values]

    def answer(self, request: VectorRequest, index: int, values: list[float]) -> Vector:
        assert isinstance(request, EmbedRequest)
        size = request.dimensions or len(values)
        if size > len(values):
            raise RequestInvalid(
                f"dimensions is {size}; this model's vectors have {len(values)}",
                param="dimensions",
            )
        kept = np.array(values[:size], dtype="<f4")
        length = float(np.linalg.norm(kept))
        if not math.isfinite(length):
            raise EngineFailed(
                f"the model's vector of input {index} holds values that are no numbers; nothing"
                " was sent"
            )
        return Vector(request.request_id, index, (kept / max(length, _SMALLEST)).tobytes())

    def _row(self, value: str | list[int], where: str, *, truncate: bool) -> Row:
        room = self.max_context - len(self._before) - len(self._behind)
        if isinstance(value, str):
            body = self._tokenizer.encode(value, add_special_tokens=False)
        else:
            body = value
            unknown = [token for token in body if not 0 <= token < self._vocabulary]
            if unknown:
                raise RequestInvalid(
                    f"{where} holds token {unknown[0]}; this model's ids are 0 to"
                    f" {self._vocabulary - 1}",
                    param=where,
                )
        if len(body) > room and not truncate:
            raise RequestInvalid(
                f"{where} is {len(body)} tokens; this model takes {room}. Shorten it, or send"
                " truncate true to have its end cut off",
                param=where,
            )
        return [*self._before, *body[:room], *self._behind]


def load_embedding(settings: LoadSettings) -> EmbeddingModel:
    """Raises LoadError. Runs no code of the model's folder."""
    folder = Path(settings.path)
    try:
        config = read_json(folder / "config.json")
        model = load_embedding_model(folder)
        model.pooling_config = read_pooling_config(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        limit = limit_of(folder, config, tokenizer.model_max_length)
        tokenizer.model_max_length = _NO_LENGTH  # the limit is checked, with both numbers
        vocabulary = int(config.get("vocab_size") or len(tokenizer))
        made = EmbeddingModel(model, tokenizer, limit=limit, vocabulary=vocabulary)
        made.compute([tokenizer.encode("a")])  # a pooling that is not known says so here
    except Exception as error:  # the libraries raise whatever their many classes do
        raise LoadError(
            f"{settings.model_id} in {folder} cannot be loaded as an embedding model: {error}",
            permanent=True,
        ) from error
    return made


def limit_of(folder: Path, config: Mapping[str, Any], tokenizer_limit: int) -> int:
    """Tokens of one input, special tokens included: the smallest limit that any file names."""
    positions = max_context(config)
    if positions is not None and "roberta" in str(config.get("model_type")):
        positions -= 2  # its first position is the one behind the padding's
    named = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    limits = [positions, named, tokenizer_limit if tokenizer_limit < _NO_LENGTH else None]
    return min((limit for limit in limits if isinstance(limit, int)), default=512)


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Those before and behind a text."""
    plain = tokenizer.encode("x", add_special_tokens=False)
    whole = tokenizer.encode("x")
    for begin in range(len(whole) - len(plain) + 1):
        if whole[begin : begin + len(plain)] == plain:
            return whole[:begin], whole[begin + len(plain) :]
    return [], []


def read_json(path: Path) -> dict[str, Any]:
    """An object; empty if there is no such file. Raises OSError and ValueError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return value
