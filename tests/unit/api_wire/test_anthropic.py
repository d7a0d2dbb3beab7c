"""Bodies of /v1/messages and its count to requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire import anthropic
from omlxd.api.wire.dialect import Call, Job
from omlxd.api.wire.fold import Fold
from omlxd.errors import RequestInvalid
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Constraint,
    Finished,
    GenerateRequest,
    ReasoningDelta,
    Sampling,
    Thinking,
    Usage,
)

MODEL = ServedModel(id="org/tiny", kind="llm")
CALL = Call(request_id="req_ab", created=1, model=MODEL)
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
FIND = {"name": "find", "input_schema": {"type": "object", "properties": {}}, "defer_loading": True}


def job_of(**body: Any) -> Job:
    return anthropic.parse({"model": "small", "messages": HI, **body}, CALL)


def request_of(**body: Any) -> GenerateRequest:
    (request,) = job_of(**body).requests
    return request


def test_a_plain_body() -> None:
    """Without `thinking` there is none, and without `max_tokens` the window is the limit."""
    assert request_of() == GenerateRequest(
        request_id="req_ab",
        model="org/tiny",
        api="messages",
        messages=HI,
        thinking=Thinking(enabled=False),
    )


def test_parameters() -> None:
    """Each has its place in the request."""
    request = request_of(
        max_tokens=9, temperature=0.5, top_p=0.9, top_k=-1, stop_sequences=["END"], stream=True
    )
    assert request.sampling == Sampling(temperature=0.5, top_p=0.9, top_k=0)
    assert (request.max_tokens, request.stop) == (9, ["END"])
    assert job_of(stream=True).stream
    assert not job_of(stream=False).stream


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (None, Thinking(enabled=False)),
        ({"type": "disabled"}, Thinking(enabled=False)),
        ({"type": "adaptive", "display": "omitted"}, Thinking(enabled=True, effort="high")),
        ({"type": "between_tools"}, Thinking(enabled=True, effort="high")),
        (
            {"type": "enabled", "budget_tokens": 1024},
            Thinking(enabled=True, budget_tokens=1024, effort="high"),
        ),
    ],
)
def test_thinking(thinking: Any, expected: Thinking) -> None:
    """An effort belongs to thinking: Claude Code sends one with requests that do not think."""
    request = request_of(thinking=thinking, output_config={"effort": "high"})
    assert request.thinking == expected


@pytest.mark.parametrize(("display", "shown"), [("omitted", ""), ("updates", "hm"), (None, "hm")])
def test_thinking_is_shown_unless_it_is_to_be_omitted(display: str | None, shown: str) -> None:
    """A display that nobody knows yet shows it."""
    job = job_of(thinking={"type": "adaptive", "display": display})
    fold = Fold(1)
    for event in (ReasoningDelta("req_ab", 0, "hm"), Finished("req_ab", 0, "stop")):
        fold.add(event)
    (block,) = msgspec.json.decode(job.renderer.result(fold))["content"]
    assert (block["type"], block["thinking"]) == ("thinking", shown)


def test_an_output_format_has_two_names() -> None:
    """The new one counts."""
    where = "output_config.format.schema"
    assert request_of(output_config={"format": FORMAT}).constraint == Constraint(
        kind="json_schema", value=SCHEMA, param=where
    )
    old = request_of(output_format=FORMAT).constraint
    assert old == Constraint(kind="json_schema", value=SCHEMA, param="output_format.schema")


def test_only_what_was_introduced_can_be_called() -> None:
    """A deferred tool that no reference stands for is in no list; nor is Claude Code's own mark."""
    placeholder = {**FIND, "name": "DeferredToolPlaceholder"}
    hidden = request_of(tools=[placeholder, FIND])
    assert (hidden.tools, hidden.deferred_tools) == ([], [])
    reference = {"type": "tool_reference", "tool_name": "find"}
    result = {"type": "tool_result", "tool_use_id": "x", "content": [reference]}
    introduced = request_of(
        tools=[placeholder, FIND], messages=[{"role": "user", "content": [result]}]
    )
    assert [tool["function"]["name"] for tool in introduced.deferred_tools] == ["find"]
    named = request_of(tools=[FIND], tool_choice={"type": "tool", "name": "find"})
    assert len(named.deferred_tools) == 1


def test_keys_without_a_meaning_here_are_let_through() -> None:
    """What only Anthropic's service does cannot be missed by a client that works without."""
    plain = request_of()
    for key in ("metadata", "context_management", "safeguards", "service_tier", "cache_control"):
        assert request_of(**{key: {"type": "x"}}) == plain
    assert request_of(max_tokens=None, tools=None, system=None, mcp_servers=[]) == plain


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": 7}, "output_config"),
        ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_cannot_be_kept_is_refused(body: dict[str, Any], param: str) -> None:
    """With the name of the parameter, first of all."""
    with pytest.raises(RequestInvalid) as refused:
        job_of(**body)
    assert refused.value.param == param
    assert str(refused.value).startswith(param)


def test_a_model_that_does_not_generate() -> None:
    """Is refused for both."""
    embedder = Call(request_id="r", created=1, model=ServedModel(id="e", kind="embedding"))
    for parse in (anthropic.parse, anthropic.parse_count):
        with pytest.raises(RequestInvalid, match="does not generate text"):
            parse({"model": "e", "messages": HI}, embedder)


def test_a_count_is_of_the_same_request() -> None:
    """Only that nothing is generated; the answer is the size of the prompt."""
    body = {"model": "small", "messages": HI, "system": "s", "tools": [FIND], "stream": True}
    job = anthropic.parse_count(body, CALL)
    (counted,) = job.requests
    assert counted.count_only
    assert not job.stream
    generated = anthropic.parse(body, CALL).requests[0]
    assert msgspec.structs.replace(counted, count_only=False, api="messages") == generated
    fold = Fold(1)
    fold.add(Accepted("req_ab", 12))
    fold.add(Completed("req_ab", Usage()))
    assert job.renderer.result(fold) == b'{"input_tokens":12}'
