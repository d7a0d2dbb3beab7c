"""Chat completions: bodies to requests, events to the exact bytes of a transcript."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.dialect import Call, Job
from omlxd.api.wire.fold import Fold
from omlxd.api.wire.openai_chat import parse
from omlxd.errors import ContextOverflow, EngineFailed, RequestInvalid
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Finished,
    GenerateRequest,
    Thinking,
    TokenLogprob,
    Usage,
)

MODEL = ServedModel(id="org/tiny", kind="llm")
CALL = Call(request_id="req_ab", created=1700000000, model=MODEL)
HI = [{"role": "user", "content": "hi"}]
LS: dict[str, Any] = {
    "type": "function",
    "function": {"name": "ls", "description": "lists", "parameters": {}},
}
HEAD = (
    '{"object":"chat.completion.chunk","id":"chatcmpl-ab","created":1700000000,'
    '"model":"org/tiny","choices":['
)


def job_of(**body: Any) -> Job:
    return parse({"model": "small", "messages": HI, **body}, CALL)


def request_of(**body: Any) -> GenerateRequest:
    (request,) = job_of(**body).requests
    return request


def run(job: Job, *events: Event) -> str:
    return b"".join(job.renderer.event(event) for event in events).decode()


def test_a_plain_body() -> None:
    """A minimal body becomes one request for the resolved model, with nothing decided for it."""
    assert request_of() == GenerateRequest(
        request_id="req_ab", model="org/tiny", api="chat", messages=HI
    )
    assert job_of(stream=True).stream
    assert not job_of().stream


def test_max_tokens_has_two_names() -> None:
    """Either name counts, the same value twice is fine, and a contradiction is refused."""
    assert request_of(max_tokens=5).max_tokens == 5
    assert request_of(max_completion_tokens=6).max_tokens == 6
    assert request_of(max_tokens=7, max_completion_tokens=7).max_tokens == 7
    with pytest.raises(RequestInvalid, match="contradicts"):
        job_of(max_tokens=5, max_completion_tokens=6)


def test_logprobs() -> None:
    """logprobs asks for the chosen token, top_logprobs for more, and not without the other."""
    assert request_of().top_logprobs is None
    assert request_of(logprobs=True).top_logprobs == 0
    assert request_of(logprobs=True, top_logprobs=20).top_logprobs == 20
    assert request_of(logprobs=False, top_logprobs=0).top_logprobs is None
    for body in ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 21}, {"logprobs": 2}):
        with pytest.raises(RequestInvalid, match="logprobs"):
            job_of(**body)


@pytest.mark.parametrize(
    ("body", "kwargs"),
    [
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}),
        ({"chat_template_kwargs": {"enable_thinking": "false"}}, {"enable_thinking": False}),
        (
            {"extra_body": {"chat_template_kwargs": {"enable_thinking": False, "x": [1]}}},
            {"enable_thinking": False, "x": [1]},
        ),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
            {"enable_thinking": False},
        ),
        ({"chat_template_kwargs": {"enable_thinking": None, "x": None}}, {"x": None}),
        ({}, {}),
    ],
)
def test_template_kwargs(body: dict[str, Any], kwargs: dict[str, Any]) -> None:
    """Template arguments arrive from every place where clients put them, flags as booleans."""
    assert request_of(**body).template_kwargs == kwargs


@pytest.mark.parametrize(
    ("body", "thinking"),
    [
        ({}, Thinking()),
        ({"enable_thinking": True}, Thinking(enabled=True)),
        ({"enable_thinking": "False"}, Thinking(enabled=False)),
        ({"extra_body": {"enable_thinking": False}}, Thinking(enabled=False)),
        ({"reasoning_effort": "low"}, Thinking(enabled=True, effort="low")),
        ({"reasoning_effort": "none"}, Thinking(enabled=False)),
        ({"reasoning": {"effort": "high"}}, Thinking(enabled=True, effort="high")),
        ({"reasoning": {"enabled": False}}, Thinking(enabled=False)),
        ({"reasoning": {"max_tokens": 9}}, Thinking(budget_tokens=9)),
        ({"reasoning": {"max_tokens": 0}}, Thinking(enabled=False)),
        ({"reasoning_effort": "low", "enable_thinking": False}, Thinking(enabled=False)),
        ({"reasoning_effort": "none", "enable_thinking": True}, Thinking(enabled=True)),
        ({"thinking": {"type": "auto"}}, Thinking()),
        ({"thinking": {"type": "adaptive"}}, Thinking(enabled=True)),
        ({"thinking": {"type": "disabled", "budget_tokens": 0}}, Thinking(enabled=False)),
        ({"thinking": {"type": "disabled"}}, Thinking(enabled=False)),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 7}},
            Thinking(enabled=True, budget_tokens=7),
        ),
        ({"thinking_budget": 5}, Thinking(budget_tokens=5)),
    ],
)
def test_thinking(body: dict[str, Any], thinking: Thinking) -> None:
    """Whether and how long to think, in all the ways in which clients say it."""
    assert request_of(**body).thinking == thinking


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"thinking": 1}}, "chat_template_kwargs.thinking"),
        ({"enable_thinking": "maybe"}, "enable_thinking"),
        ({"thinking": {"type": "perhaps"}}, "thinking.type"),
        ({"thinking_budget": -1}, "thinking_budget"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": {}}, "tools"),
        ({"tools": [LS, LS]}, "tools[1].function"),
        ({"tools": [LS], "tool_choice": "some"}, "tool_choice"),
        ({"tools": [LS], "tool_choice": {"function": {"name": "rm"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [LS], "parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"guided_regex": 1}, "guided_regex"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
        ({"structured_outputs": {"nonsense": 1}}, "structured_outputs.nonsense"),
        ({"response_format": "json"}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"best_of": 2}, "best_of"),
        ({"extra_body": {"mirostat": 2}}, "mirostat"),
        ({"functions": [{}]}, "functions[0]"),
        ({"messages": []}, "messages"),
    ],
)
def test_refused_by_name(body: dict[str, Any], param: str) -> None:
    """What changes the answer and is not kept is refused, and the parameter is named."""
    with pytest.raises(RequestInvalid) as refusal:
        job_of(**body)
    assert refusal.value.param == param
    assert param.split(".")[0] in refusal.value.message


def test_models_of_other_kinds_are_refused() -> None:
    """An embedding model does not chat."""
    call = Call(request_id="req_ab", created=1, model=ServedModel(id="e", kind="embedding"))
    with pytest.raises(RequestInvalid, match="kind embedding") as refusal:
        parse({"messages": HI}, call)
    assert refusal.value.param == "model"


def test_a_final_assistant_message_is_continued() -> None:
    """The prefill flag survives an empty text and a neighbour of the same role."""
    partial = {"role": "assistant", "content": "", "partial": True}
    request = request_of(messages=[*HI, {"role": "assistant", "content": "a"}, partial])
    assert request.continue_final
    assert request.messages is not None
    assert request.messages[-1] == {"role": "assistant", "content": ""}
    assert not request_of().continue_final


def test_stream_transcript() -> None:
    """Role, text, finish, [DONE]; no usage unless asked for."""
    answer = run(
        job_of(stream=True),
        Accepted("req_ab", 3),
        Delta("req_ab", 0, 'a"\n'),
        Delta("req_ab", 0, "é"),
        Finished("req_ab", 0, "stop"),
        Completed("req_ab", Usage(prompt_tokens=3, output_tokens=2)),
    )
    end = ',"logprobs":null,"finish_reason":null}]}\n\n'
    assert answer == (
        f'data: {HEAD}{{"index":0,"delta":{{"role":"assistant","content":""}}{end}'
        f'data: {HEAD}{{"index":0,"delta":{{"content":"a\\"\\n"}}{end}'
        f'data: {HEAD}{{"index":0,"delta":{{"content":"é"}}{end}'
        f'data: {HEAD}{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"stop"}}]}}\n\n'
        "data: [DONE]\n\n"
    )


def test_stream_transcript_with_usage() -> None:
    """Asked for, usage is one extra chunk without choices after the finish, else null."""
    answer = run(
        job_of(stream=True, stream_options={"include_usage": True}),
        Finished("req_ab", 0, "length"),
        Completed("req_ab", Usage(prompt_tokens=3, output_tokens=2, cached_tokens=1, ram=1)),
    )
    tail = '"logprobs":null,"finish_reason":'
    assert answer == (
        f'data: {HEAD}{{"index":0,"delta":{{"role":"assistant","content":""}},{tail}null}}],'
        '"usage":null}\n\n'
        f'data: {HEAD}{{"index":0,"delta":{{}},{tail}"length"}}],"usage":null}}\n\n'
        f'data: {HEAD}],"usage":{{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,'
        '"prompt_tokens_details":{"cached_tokens":1},'
        '"completion_tokens_details":{"reasoning_tokens":0}}}\n\n'
        "data: [DONE]\n\n"
    )


def test_stream_opens_every_choice_once() -> None:
    """Its role comes first, in the order of the choices: the official client counts them."""
    answer = run(
        job_of(stream=True, n=2),
        Delta("req_ab", 1, "x"),
        Delta("req_ab", 0, "y"),
        Delta("req_ab", 1, "z"),
    )
    assert [line.count("role") for line in answer.split("\n\n")[:-1]] == [1, 1, 0, 0, 0]


def test_logprobs_in_chunks() -> None:
    """Log-probabilities go with their text; minus infinity becomes a number."""
    token = TokenLogprob("h", -0.5, b"h", [("h", -0.5, b"h"), ("?", float("-inf"), b"\xff")])
    job = job_of(stream=True, logprobs=True, top_logprobs=2)
    chunk = run(job, Delta("req_ab", 0, "h", logprobs=[token])).split("data: ")[-1]
    content = msgspec.json.decode(chunk)["choices"][0]["logprobs"]["content"]
    assert content == [
        {
            "token": "h",
            "logprob": -0.5,
            "bytes": [104],
            "top_logprobs": [
                {"token": "h", "logprob": -0.5, "bytes": [104]},
                {"token": "?", "logprob": -9999.0, "bytes": [255]},
            ],
        }
    ]


def test_failure_frames() -> None:
    """A stream that has begun ends with an error object and [DONE]."""
    assert job_of(stream=True).renderer.failure(EngineFailed("It broke.")) == (
        b'data: {"error":{"message":"It broke.","type":"server_error","param":null,'
        b'"code":"engine_failed"}}\n\ndata: [DONE]\n\n'
    )


def test_overflow_has_both_numbers() -> None:
    """Clients find the code, the wording and the two numbers that make them compact."""
    overflow = ContextOverflow("too long", prompt_tokens=4100, max_context=4096)
    frames = job_of(stream=True).renderer.failure(overflow)
    error = msgspec.json.decode(frames.split(b"\n")[0].removeprefix(b"data: "))["error"]
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 4096 tokens" in error["message"]
    assert "4100 tokens" in error["message"]


def test_whole_answer() -> None:
    """The object that is not streamed has the same texts and exact usage."""
    job = job_of(n=2)
    fold = Fold(2)
    for event in (
        Delta("req_ab", 1, "x"),
        Delta("req_ab", 0, "y"),
        Finished("req_ab", 0, "stop"),
        Finished("req_ab", 1, "length"),
        Completed("req_ab", Usage(prompt_tokens=3, output_tokens=2)),
    ):
        fold.add(event)
    assert msgspec.json.decode(job.renderer.result(fold)) == {
        "id": "chatcmpl-ab",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "org/tiny",
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": reason,
            }
            for index, text, reason in ((0, "y", "stop"), (1, "x", "length"))
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
