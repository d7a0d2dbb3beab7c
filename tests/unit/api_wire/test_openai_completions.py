"""Completions: prompts in all their forms, the legacy shapes of answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.dialect import Call, Job
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.openai_completions import parse
from omlxd.errors import EngineFailed, RequestInvalid
from omlxd.ipc.messages import (
    Completed,
    Delta,
    Event,
    Finished,
    GenerateRequest,
    TokenLogprob,
    Usage,
)

CALL = Call(request_id="req_ab", created=1700000000, model=ServedModel(id="org/tiny", kind="llm"))
HEAD = '{"id":"cmpl-ab","object":"text_completion","created":1700000000,"model":"org/tiny",'


def job_of(**body: Any) -> Job:
    return parse({"model": "small", "prompt": "Once", **body}, CALL)


def frames_of(job: Job, *events: Event) -> list[str]:
    frames = b"".join(job.renderer.event(event) for event in events).decode()
    return frames.split("\n\n")[:-1]


def test_a_plain_body() -> None:
    """One prompt is one request with the route's default length."""
    assert job_of().requests == (
        GenerateRequest(
            request_id="req_ab", model="org/tiny", api="completions", prompt="Once", max_tokens=16
        ),
    )


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_prompts(prompt: Any, prompts: list[Any]) -> None:
    """Strings and token ids, alone or in lists: one request each, ids told apart."""
    requests = job_of(prompt=prompt, n=2, echo=True, max_tokens=3).requests
    assert [request.prompt for request in requests] == prompts
    assert len({request.request_id for request in requests}) == len(prompts)
    assert all(
        (request.n, request.echo, request.max_tokens) == (2, True, 3) for request in requests
    )


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        [],
        5,
        {"a": 1},
        [""] * 65,
        ["a", 1],
        ["a", [1]],
        [[]],
        [[1], []],
        [-1],
        [True],
        [["a"]],
    ],
)
def test_prompts_that_are_refused(prompt: Any) -> None:
    """Anything else is refused with the parameter's name."""
    with pytest.raises(RequestInvalid) as refusal:
        job_of(prompt=prompt)
    assert refusal.value.param is not None
    assert refusal.value.param.startswith("prompt")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"echo": True, "logprobs": 0}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_refused_by_name(body: dict[str, Any], param: str) -> None:
    """What is not kept is refused, and the parameter is named."""
    with pytest.raises(RequestInvalid) as refusal:
        job_of(**body)
    assert refusal.value.param == param


def test_best_of_n_asks_for_nothing() -> None:
    """best_of equal to n, and an empty suffix, are what happens anyway."""
    assert job_of(n=2, best_of=2, suffix="").n == 2


def test_stream_transcript() -> None:
    """Text chunks, a finish chunk, usage when asked for, [DONE]."""
    frames = frames_of(
        job_of(stream=True, stream_options={"include_usage": True}),
        Delta("req_ab", 0, "up"),
        Finished("req_ab", 0, "length"),
        Completed("req_ab", Usage(prompt_tokens=1, output_tokens=1)),
    )
    assert frames == [
        f'data: {HEAD}"choices":[{{"index":0,"text":"up","logprobs":null,"finish_reason":null}}],'
        '"usage":null}',
        f'data: {HEAD}"choices":[{{"index":0,"text":"","logprobs":null,'
        '"finish_reason":"length"}],"usage":null}',
        f'data: {HEAD}"choices":[],"usage":{{"prompt_tokens":1,"completion_tokens":1,'
        '"total_tokens":2,"prompt_tokens_details":{"cached_tokens":0},'
        '"completion_tokens_details":{"reasoning_tokens":0}}}',
        "data: [DONE]",
    ]


def test_stream_without_usage() -> None:
    """Nobody who did not ask gets usage."""
    done = Completed("req_ab", Usage(prompt_tokens=1, output_tokens=1))
    assert frames_of(job_of(stream=True), done) == ["data: [DONE]"]
    failure = job_of(stream=True).renderer.failure(EngineFailed("x"))
    assert failure.endswith(b"data: [DONE]\n\n")


def test_logprobs_count_on() -> None:
    """Offsets of a choice's tokens go on from chunk to chunk and equal the whole answer's."""
    deltas = [
        Delta("req_ab", 0, word, logprobs=[TokenLogprob(word, -1.0, b"", [(word, -1.0, b"")])])
        for word in ("ab", "c")
    ]
    job = job_of(logprobs=1)
    streamed = [
        msgspec.json.decode(frame.removeprefix("data: "))["choices"][0]["logprobs"]
        for frame in frames_of(job, *deltas)
    ]
    assert [chunk["text_offset"] for chunk in streamed] == [[0], [2]]
    fold = Fold(1)
    for event in (*deltas, Finished("req_ab", 0, "stop")):
        fold.add(event)
    choice = msgspec.json.decode(job.renderer.result(fold))["choices"][0]
    assert choice["text"] == "abc"
    assert choice["logprobs"] == {
        "tokens": ["ab", "c"],
        "token_logprobs": [-1.0, -1.0],
        "top_logprobs": [{"ab": -1.0}, {"c": -1.0}],
        "text_offset": [0, 2],
    }
