"""POST /v1/rerank and /rerank in the shape that Jina and Cohere share: scores → sorted results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from omlxd.api.wire.dialect import Call, Dialect, Job, require_kind
from omlxd.api.wire.errors import openai_error
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.openai_params import flatten
from omlxd.api.wire.wording import refusal
from omlxd.errors import OmlxError, RequestInvalid
from omlxd.ipc.messages import Event
from omlxd.ipc.vectors import ScoreRequest

API = "rerank"
MAX_DOCUMENTS = 2048

TopN = Annotated[int, Meta(ge=1, le=1 << 31)]


class RerankParams(Struct, frozen=True, kw_only=True):
    query: str
    top_n: TopN | None = None
    return_documents: bool = False
    instruction: str | None = None
    truncate: bool = True


def parse(body: Mapping[str, Any], call: Call) -> Job:
    """One request for all documents. Raises RequestInvalid."""
    require_kind(call.model, "reranker", "/v1/rerank")
    body = flatten(body)
    try:
        asked = msgspec.convert(body, RerankParams, str_keys=True)
    except msgspec.ValidationError as error:
        raise refusal(str(error), body) from None
    documents = body.get("documents")
    request = ScoreRequest(
        request_id=call.request_id,
        model=call.model.id,
        api=API,
        query=asked.query,
        documents=_texts(documents),
        instruction=asked.instruction,
        truncate=asked.truncate,
    )
    renderer = RerankRenderer(
        call,
        documents=documents if asked.return_documents else None,
        top_n=asked.top_n,
    )
    return Job(requests=(request,), n=1, stream=False, renderer=renderer)


DIALECT = Dialect(name=API, parse=parse)


class RerankRenderer:
    """Best first; of equals the one that was sent first."""

    def __init__(self, call: Call, *, documents: Any, top_n: int | None) -> None:
        self._id, self._model = call.request_id, call.model.id
        self._documents, self._top_n = documents, top_n

    def event(self, event: Event) -> bytes:
        return b""  # it is never a stream

    def failure(self, error: OmlxError) -> bytes:
        return openai_error(error)

    def result(self, fold: Fold) -> bytes:
        ranked = sorted(fold.scores.items(), key=lambda pair: (-pair[1], pair[0]))[: self._top_n]
        tokens = fold.usage.prompt_tokens
        return msgspec.json.encode(
            {
                "id": self._id,
                "object": "list",
                "model": self._model,
                "results": [self._entry(index, score) for index, score in ranked],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
                "meta": {"tokens": {"input_tokens": tokens}},
            }
        )

    def _entry(self, index: int, score: float) -> dict[str, Any]:
        entry: dict[str, Any] = {"index": index, "relevance_score": score}
        if self._documents is not None:
            document = self._documents[index]
            entry["document"] = {"text": document} if isinstance(document, str) else document
        return entry


def _texts(documents: Any) -> list[str]:
    """Of documents that are texts, or objects with a `text`; other fields of these are kept."""
    if not isinstance(documents, list) or not documents:
        raise RequestInvalid(
            "documents: send a list of strings, or of objects with a text.", param="documents"
        )
    if len(documents) > MAX_DOCUMENTS:
        raise RequestInvalid(
            f"documents: has {len(documents)} entries; send at most {MAX_DOCUMENTS} at once.",
            param="documents",
        )
    return [_text(document, f"documents[{i}]") for i, document in enumerate(documents)]


def _text(document: Any, where: str) -> str:
    text = document.get("text") if isinstance(document, Mapping) else document
    if not isinstance(text, str):
        raise RequestInvalid(f"{where}: send a string, or an object with a text.", param=where)
    return text
