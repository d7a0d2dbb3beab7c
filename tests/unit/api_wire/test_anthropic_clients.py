"""What real clients sent to /v1/messages is read, and keeps its prefix from turn to turn."""

from __future__ import annotations

import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.anthropic import parse, parse_count
from omlxd.api.wire.dialect import Call
from omlxd.ipc.messages import GenerateRequest
from tests.support.client_bodies import Body, client_bodies, earlier_turns

CALL = Call(request_id="req_ab", created=1, model=ServedModel(id="m", kind="llm"))
BODIES = client_bodies("anthropic")
TURNS = [
    ("claude-code__p_first_turn", "claude-code__p_second_turn_thinking_tool"),
    ("claude-code__p_second_turn_thinking_tool", "claude-code__p_third_turn"),
    ("claude-code__tui_first_turn", "claude-code__tui_third_turn"),
]


def read(body: Body) -> GenerateRequest:
    (request,) = parse(body, CALL).requests
    return request


def begins(longer: GenerateRequest, shorter: GenerateRequest) -> bool:
    """What a template makes of the one is the beginning of what it makes of the other."""
    assert longer.messages is not None
    assert shorter.messages is not None
    head = longer.messages[: len(shorter.messages)]
    return head == shorter.messages and longer.tools == shorter.tools


@pytest.mark.parametrize("name", BODIES)
def test_every_body_is_read(name: str) -> None:
    """Text is all that reaches a template, and no prompt has what varies between sessions."""
    request = read(BODIES[name])
    assert request.messages
    for message in request.messages:
        assert isinstance(message["content"], str)
    text = str((request.messages, request.tools))
    assert "x-anthropic-billing-header" not in text
    assert "cache_control" not in text
    assert "defer_loading" not in text
    assert parse_count(BODIES[name], CALL).requests[0].messages == request.messages


@pytest.mark.parametrize("name", BODIES)
def test_every_turn_begins_as_the_one_before(name: str) -> None:
    """Whatever a client's conversation holds, a longer one renumbers and rewrites nothing."""
    for earlier in earlier_turns(BODIES[name]):
        assert begins(read(BODIES[name]), read(earlier))


@pytest.mark.parametrize(("shorter", "longer"), TURNS)
def test_recorded_turns_begin_alike(shorter: str, longer: str) -> None:
    """Though cache marks moved, and content was a list once and a string then."""
    assert begins(read(BODIES[longer]), read(BODIES[shorter]))


def test_a_compaction_goes_on_with_the_same_prompt() -> None:
    """It is one more user message, with the tools still there."""
    request = read(BODIES["claude-code__p_compaction"])
    assert request.messages is not None
    assert [message["role"] for message in request.messages[-2:]] == ["tool", "user"]
    assert len(request.tools) == 11


def test_parallel_results_stay_in_the_order_sent() -> None:
    """Each answers its own call."""
    request = read(BODIES["claude-code__p_parallel_tool_results"])
    assert request.messages is not None
    called = [call["id"] for call in request.messages[-4]["tool_calls"]]
    answered = [message["tool_call_id"] for message in request.messages[-3:]]
    assert sorted(called) == sorted(answered)
    assert called != answered


def test_a_pictures_place_is_kept() -> None:
    """A text model is told of it, and it is counted."""
    job = parse(BODIES["claude-code__p_image_tool_result"], CALL)
    messages = job.requests[0].messages
    assert messages is not None
    assert messages[-1]["content"] == "[image omitted: m has no vision]"
    assert job.media_omitted == 1
