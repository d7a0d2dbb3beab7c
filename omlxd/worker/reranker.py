"""Rerankers: sequence classifiers, and chat models that are asked for a yes or a no.

A classifier's one output, and the difference between the logits of "yes" and "no", become a score
from 0 to 1 by the logistic function. The question for yes/no models is that of Qwen3-Reranker's
model card. Rows are padded at their right: causal layers never see that, others are masked.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model as load_text_model
from mlx_vlm.reranker_loader import load_sequence_classification_model
from transformers import AutoTokenizer

from omlxd.errors import EngineFailed, RequestInvalid
from omlxd.ipc.messages import LoadSettings
from omlxd.ipc.vectors import Score, ScoreRequest
from omlxd.models.kinds import architectures
from omlxd.worker.embedding import limit_of
from omlxd.worker.ports import LoadError
from omlxd.worker.vector_ports import Row, VectorRequest

_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
_BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_YES_NO_LIMIT = 8192
_NO_LENGTH = 10**9
_FEWEST_OF_DOCUMENT = 16  # tokens that a query has to leave


class _Reranker(ABC):
    """What both kinds share; implements `vector_ports.VectorModel` but for two methods."""

    def __init__(self, model: Any, tokenizer: Any, *, limit: int) -> None:
        self._model, self._tokenizer = model, tokenizer
        self.max_context = limit
        self.weights_bytes = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
        pad = tokenizer.pad_token_id
        self._pad = 0 if pad is None else int(pad)

    def rows(self, request: VectorRequest) -> list[Row]:
        if not isinstance(request, ScoreRequest):
            raise RequestInvalid("this model ranks, it does not embed", param="model")
        return self._pairs(request)

    def answer(self, request: VectorRequest, index: int, values: list[float]) -> Score:
        assert isinstance(request, ScoreRequest)
        [logit] = values
        if not math.isfinite(logit):
            raise EngineFailed(f"the model's score of document {index} is no number")
        return Score(request.request_id, index, 1 / (1 + math.exp(-max(-60.0, min(60.0, logit)))))

    @abstractmethod
    def _pairs(self, request: ScoreRequest) -> list[Row]:
        """The rows of a request, one per document."""

    def _fitted(
        self, request: ScoreRequest, query: Row, document: Row, index: int, room: int
    ) -> Row:
        """The document, cut to what the query leaves of the room if that may be."""
        left = room - len(query)
        if left < min(_FEWEST_OF_DOCUMENT, len(document)):
            raise RequestInvalid(
                f"query is {len(query)} tokens; with a document this model takes {room}. Shorten"
                " the query",
                param="query",
            )
        if len(document) > left and not request.truncate:
            raise RequestInvalid(
                f"documents[{index}] is {len(document)} tokens; beside this query the model takes"
                f" {left}. Shorten it, or send truncate true to have its end cut off",
                param=f"documents[{index}]",
            )
        return document[:left]

    def _padded(self, rows: Sequence[Row]) -> tuple[Any, Any]:
        longest = max(map(len, rows))
        ids = mx.array([[*row, *[self._pad] * (longest - len(row))] for row in rows])
        mask = mx.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        return ids, mask

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


class Classifier(_Reranker):
    """One logit for a pair of texts."""

    def __init__(self, model: Any, tokenizer: Any, *, limit: int) -> None:
        super().__init__(model, tokenizer, limit=limit)
        probe = tokenizer("x", "x")
        self._has_types = "token_type_ids" in probe
        self._between, self._ends = self._marks(probe["input_ids"])

    def _marks(self, pair: list[int]) -> tuple[tuple[Row, Row], Row]:
        """(before the query, between the two), behind the document."""
        plain = self._encode("x")
        first = next(i for i in range(len(pair)) if pair[i : i + len(plain)] == plain)
        rest = pair[first + len(plain) :]
        second = next(i for i in range(len(rest)) if rest[i : i + len(plain)] == plain)
        return (pair[:first], rest[:second]), rest[second + len(plain) :]

    def _pairs(self, request: ScoreRequest) -> list[Row]:
        before, between = self._between
        query = self._encode(request.query)
        room = self.max_context - len(before) - len(between) - len(self._ends)
        rows: list[Row] = []
        for index, text in enumerate(request.documents):
            document = self._fitted(request, query, self._encode(text), index, room)
            rows.append([*before, *query, *between, *document, *self._ends])
        return rows

    def compute(self, rows: Sequence[Row]) -> list[list[float]]:
        ids, mask = self._padded(rows)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self._has_types:
            inputs["token_type_ids"] = self._types(rows, ids.shape[1])
        logits = self._model(**inputs).logits[:, :1]
        return [row.tolist() for row in np.array(logits.astype(mx.float32))]

    def _types(self, rows: Sequence[Row], width: int) -> Any:
        """1 from behind the separator that follows the query on, as a BERT was trained."""
        _, between = self._between
        ends = [self._second(row, list(between)) for row in rows]
        return mx.array(
            [
                [int(end <= place < len(row)) for place in range(width)]
                for row, end in zip(rows, ends, strict=True)
            ]
        )

    @staticmethod
    def _second(row: Row, between: list[int]) -> int:
        size = len(between)
        found = (i + size for i in range(1, len(row)) if list(row[i : i + size]) == between)
        return next(found, len(row))


class YesNo(_Reranker):
    """A causal model; `yes` and `no` are the ids of the two answers."""

    def __init__(self, model: Any, tokenizer: Any, *, limit: int) -> None:
        super().__init__(model, tokenizer, limit=limit)
        self._before, self._behind = self._encode(_BEFORE), self._encode(_BEHIND)
        self._yes, self._no = self._encode("yes")[0], self._encode("no")[0]

    def _pairs(self, request: ScoreRequest) -> list[Row]:
        instruction = request.instruction or _INSTRUCTION
        asked = self._encode(f"<Instruct>: {instruction}\n<Query>: {request.query}\n<Document>: ")
        room = self.max_context - len(self._before) - len(self._behind)
        rows: list[Row] = []
        for index, text in enumerate(request.documents):
            document = self._fitted(request, asked, self._encode(text), index, room)
            rows.append([*self._before, *asked, *document, *self._behind])
        return rows

    def compute(self, rows: Sequence[Row]) -> list[list[float]]:
        ids, _ = self._padded(rows)
        inner = self._model.model
        hidden = inner(ids)[mx.arange(len(rows)), mx.array([len(row) - 1 for row in rows])]
        head = getattr(self._model, "lm_head", None)
        logits = inner.embed_tokens.as_linear(hidden) if head is None else head(hidden)
        difference = (logits[:, self._yes] - logits[:, self._no]).astype(mx.float32)
        return [[float(value)] for value in np.array(difference)]


def load_reranker(settings: LoadSettings) -> Classifier | YesNo:
    """Raises LoadError. Runs no code of the model's folder."""
    folder = Path(settings.path)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        limit = limit_of(folder, config, tokenizer.model_max_length)
        tokenizer.model_max_length = _NO_LENGTH
        if any(name.endswith("ForSequenceClassification") for name in architectures(config)):
            model = load_sequence_classification_model(folder, config=config)
            return Classifier(model, tokenizer, limit=limit)
        model, _ = load_text_model(folder)
        return YesNo(model, tokenizer, limit=min(limit, _YES_NO_LIMIT))
    except Exception as error:  # the libraries raise whatever their many classes do
        raise LoadError(
            f"{settings.model_id} in {folder} cannot be loaded as a reranker: {error}",
            permanent=True,
        ) from error
