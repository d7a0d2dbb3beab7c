"""What real clients sent to chat completions is read, and keeps its prefix from turn to turn."""

from __future__ import annotations

import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.dialect import Call
from omlxd.api.wire.openai_chat import parse
from omlxd.ipc.messages import GenerateRequest, Thinking, ToolChoice
from tests.support.client_bodies import Body, client_bodies, earlier_turns

CALL = Call(request_id="req_ab", created=1, model=ServedModel(id="m", kind="llm"))
BODIES = client_bodies("chat")
AGENTS = [name for name, body in BODIES.items() if len(body.get("tools", [])) > 1]


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
    """Text is all that reaches a template, every tool does, and none of the ids."""
    body = BODIES[name]
    request = read(body)
    assert request.messages is not None
    assert len(request.messages) == len(body["messages"])
    for message in request.messages:
        assert isinstance(message["content"], str)
    sent = [tool["function"]["name"] for tool in body.get("tools", [])]
    assert [tool["function"]["name"] for tool in request.tools] == sent
    text = str((request.messages, request.tools))
    assert "cache_control" not in text
    for message in body["messages"]:
        for call in message.get("tool_calls", []):
            assert call["id"] not in text


@pytest.mark.parametrize("name", BODIES)
def test_every_turn_begins_as_the_one_before(name: str) -> None:
    """Whatever a client's conversation holds, a longer one renumbers and rewrites nothing."""
    for earlier in earlier_turns(BODIES[name]):
        assert begins(read(BODIES[name]), read(earlier))


@pytest.mark.parametrize("name", AGENTS)
def test_results_know_their_calls(name: str) -> None:
    """Every call has one result, in whatever order and under whatever ids they came."""
    messages = read(BODIES[name]).messages
    assert messages is not None
    calls = [call for message in messages for call in message.get("tool_calls", [])]
    results = [message for message in messages if message["role"] == "tool"]
    called = {call["id"]: call["function"]["name"] for call in calls}
    assert len(called) == len(calls) > 0
    assert {result["tool_call_id"]: result["name"] for result in results} == called


def test_recorded_sessions_begin_alike() -> None:
    """One that calls tools one by one and one that calls three at once, up to there."""
    one_by_one, at_once = (read(BODIES[f"opencode__chat_{n}"]) for n in ("third_turn", "parallel"))
    assert one_by_one.messages is not None
    assert at_once.messages is not None
    assert one_by_one.tools == at_once.tools
    assert one_by_one.messages[:2] == at_once.messages[:2]
    assert one_by_one.messages[2] != at_once.messages[2]


@pytest.mark.parametrize("client", ["copilot", "opencode", "pi"])
def test_reasoning_comes_back(client: str) -> None:
    """Clients that are told what was thought bring it with every later turn."""
    messages = read(BODIES[f"{client}__chat_third_turn"]).messages
    assert messages is not None
    own = [message for message in messages if message["role"] == "assistant"]
    assert len(own) == 2
    for message in own:
        assert message["reasoning_content"]
        assert message["content"] == ""


def test_what_clients_ask_for_beside_the_conversation() -> None:
    """A limit under its new name, an effort, a call that is forced, and a schema."""
    pi = read(BODIES["pi__chat_third_turn"])
    assert (pi.max_tokens, pi.thinking) == (8192, Thinking(enabled=True, effort="medium"))
    assert pi.messages is not None
    assert pi.messages[0]["role"] == "system"
    forced = read(BODIES["langchain__chat_forced_tool"])
    assert forced.tool_choice == ToolChoice(mode="required", names=["Tool88"], parallel=False)
    for name in ("langchain__chat_structured", "openai-sdk__chat_json_schema"):
        constraint = read(BODIES[name]).constraint
        assert constraint is not None
        sent = BODIES[name]["response_format"]["json_schema"]["schema"]
        assert (constraint.kind, constraint.value) == ("json_schema", sent)
    copilot = read(BODIES["copilot__chat_parallel"])
    assert (copilot.sampling.temperature, copilot.sampling.top_p) == (0, 0.95)
