"""Embeddings: bodies to requests, vectors to the object that clients read."""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec
import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.dialect import Call, Job
from omlxd.api.wire.embeddings import parse
from omlxd.api.wire.fold import Fold
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import Accepted, Completed, Usage
from omlxd.ipc.vectors import EmbedRequest, Vector

CALL = Call(request_id="req_ab", created=1, model=ServedModel(id="org/enc", kind="embedding"))


def job_of(**body: Any) -> Job:
    return parse({"model": "enc", "input": "hi", **body}, CALL)


def request_of(**body: Any) -> EmbedRequest:
    (request,) = job_of(**body).requests
    assert isinstance(request, EmbedRequest)
    return request


@pytest.mark.parametrize(
    ("sent", "inputs"),
    [
        ("hi", ["hi"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["a", [3]], ["a", [3]]),
    ],
)
def test_inputs(sent: Any, inputs: list[Any]) -> None:
    """A text, token ids, or a list of either."""
    assert request_of(input=sent).inputs == inputs


def test_what_else_may_be_asked_for() -> None:
    """Dimensions, and that the end of what is too long is cut off, in two ways."""
    assert request_of(dimensions=8).dimensions == 8
    assert not request_of().truncate
    assert request_of(truncate=True).truncate
    assert request_of(extra_body={"truncate_prompt_tokens": -1}).truncate
    assert request_of(user="me", encoding_format=None) == request_of()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [1.5]}, "input[0]"),
        ({"input": ["a", None]}, "input[1]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [-1]}, "input[0]"),
        ({"input": ["x"] * 2049}, "input"),
        ({"dimensions": 0}, "dimensions"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
    ],
)
def test_refused_by_name(body: dict[str, Any], param: str) -> None:
    """What cannot be served is named."""
    with pytest.raises(RequestInvalid) as refused:
        job_of(**body)
    assert refused.value.param == param


def test_models_of_other_kinds_are_refused() -> None:
    """With the kind that the model is."""
    call = Call(request_id="r", created=1, model=ServedModel(id="m", kind="llm"))
    with pytest.raises(RequestInvalid, match="is of kind llm"):
        parse({"input": "x"}, call)


def test_the_answer_is_in_the_order_of_the_inputs() -> None:
    """As numbers or as base64 of little-endian float32; usage counts what was embedded."""
    first, second = struct.pack("<2f", 0.5, -1.0), struct.pack("<2f", 2.0, 0.25)
    fold = Fold(1)
    for event in (
        Accepted("req_ab", 7),
        Vector("req_ab", 1, second),
        Vector("req_ab", 0, first),
        Completed("req_ab", Usage(prompt_tokens=7, computed=7)),
    ):
        fold.add(event)
    plain = msgspec.json.decode(job_of().renderer.result(fold))
    assert plain == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5, -1.0]},
            {"object": "embedding", "index": 1, "embedding": [2.0, 0.25]},
        ],
        "model": "org/enc",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    packed = msgspec.json.decode(job_of(encoding_format="base64").renderer.result(fold))
    assert base64.b64decode(packed["data"][0]["embedding"]) == first
