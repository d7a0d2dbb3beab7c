"""Rerank: bodies to requests, scores to sorted results."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.dialect import Call, Job
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.rerank import parse
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Completed, Usage
from omlxd.ipc.vectors import Score, ScoreRequest

CALL = Call(request_id="req_ab", created=1, model=ServedModel(id="org/rr", kind="reranker"))
DOCUMENTS = ["a", {"text": "b", "page": 3}, "c"]


def job_of(**body: Any) -> Job:
    return parse({"model": "rr", "query": "q", "documents": DOCUMENTS, **body}, CALL)


def answer(job: Job) -> Any:
    fold = Fold(1)
    for index, score in ((2, 0.5), (0, 0.5), (1, 0.9)):
        fold.add(Score("req_ab", index, score))
    fold.add(Completed("req_ab", Usage(prompt_tokens=9)))
    return msgspec.json.decode(job.renderer.result(fold))


def test_a_body() -> None:
    """Documents are texts, or objects that have one."""
    (request,) = job_of(instruction="i", truncate=False).requests
    assert request == ScoreRequest(
        request_id="req_ab",
        model="org/rr",
        api="rerank",
        query="q",
        documents=["a", "b", "c"],
        instruction="i",
        truncate=False,
    )


def test_results_are_sorted() -> None:
    """Best first, equals in the order of the documents; `index` is the document's place."""
    found = answer(job_of())
    assert found["results"] == [
        {"index": 1, "relevance_score": 0.9},
        {"index": 0, "relevance_score": 0.5},
        {"index": 2, "relevance_score": 0.5},
    ]
    assert found["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert [entry["index"] for entry in answer(job_of(top_n=1))["results"]] == [1]


def test_documents_come_back_if_asked_for() -> None:
    """Objects with all their fields."""
    results = answer(job_of(return_documents=True, top_n=2))["results"]
    assert [entry["document"] for entry in results] == [{"text": "b", "page": 3}, {"text": "a"}]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"query": 1}, "query"),
        ({"documents": None}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": ["a", 1]}, "documents[1]"),
        ({"documents": [{"title": "x"}]}, "documents[0]"),
        ({"documents": ["x"] * 2049}, "documents"),
        ({"top_n": 0}, "top_n"),
    ],
)
def test_refused_by_name(body: dict[str, Any], param: str) -> None:
    """What cannot be served is named."""
    with pytest.raises(RequestInvalid) as refused:
        job_of(**body)
    assert refused.value.param == param


def test_models_of_other_kinds_are_refused() -> None:
    """With the kind that the model is."""
    call = Call(request_id="r", created=1, model=ServedModel(id="m", kind="embedding"))
    with pytest.raises(RequestInvalid, match="is of kind embedding"):
        parse({"query": "q", "documents": ["x"]}, call)
