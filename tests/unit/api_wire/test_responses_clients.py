"""What real clients sent to /v1/responses is read, and keeps its prefix from turn to turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omlxd.api.ports import ServedModel
from omlxd.api.wire.dialect import Call
from omlxd.api.wire.responses import parse
from omlxd.ipc.messages import GenerateRequest
from tests.support.client_bodies import Body, client_bodies

CALL = Call(request_id="req_ab", created=1, model=ServedModel(id="m", kind="llm"))
BODIES = client_bodies("responses")
OWN = ("reasoning", "function_call")  # the model's, beside messages that say so


def read(body: Body) -> GenerateRequest:
    (request,) = parse(body, CALL).requests
    return request


def earlier_turns(body: Body) -> Iterator[Body]:
    """The bodies that led to this one: its items up to each of the model's turns."""
    items = body["input"]
    for number, item in enumerate(items):
        is_own = item.get("type") in OWN or item.get("role") == "assistant"
        before = items[number - 1] if number else {}
        if is_own and before.get("type") not in OWN and before.get("role") != "assistant":
            yield {**body, "input": items[:number]}


def begins(longer: GenerateRequest, shorter: GenerateRequest) -> bool:
    """What a template makes of the one is the beginning of what it makes of the other."""
    assert longer.messages is not None
    assert shorter.messages is not None
    head = longer.messages[: len(shorter.messages)]
    return head == shorter.messages and longer.tools == shorter.tools


@pytest.mark.parametrize("name", BODIES)
def test_every_body_is_read(name: str) -> None:
    """Text is all that reaches a template, and none of the ids."""
    body = BODIES[name]
    request = read(body)
    assert request.messages
    for message in request.messages:
        assert isinstance(message["content"], str)
    items = body["input"] if isinstance(body["input"], list) else []
    text = str(request.messages)
    for id_ in (item[key] for item in items for key in ("id", "call_id") if key in item):
        assert id_ not in text


@pytest.mark.parametrize(
    "name", [name for name in BODIES if isinstance(BODIES[name]["input"], list)]
)
def test_every_turn_begins_as_the_one_before(name: str) -> None:
    """Whatever a client's conversation holds, a longer one renumbers and rewrites nothing."""
    for earlier in earlier_turns(BODIES[name]):
        assert begins(read(BODIES[name]), read(earlier))


def test_recorded_turns_begin_alike() -> None:
    """Though ids and metadata changed from one request to the next."""
    first, third = BODIES["codex__first_turn"], BODIES["codex__third_turn_reasoning"]
    assert begins(read(third), read(first))
    assert read(first).messages != read(third).messages


def test_codexs_tools() -> None:
    """Those of its namespace are offered beside the others, and its web search is not."""
    sent = BODIES["codex__first_turn"]["tools"]
    offered = [tool["function"]["name"] for tool in read(BODIES["codex__first_turn"]).tools]
    (group,) = (tool for tool in sent if tool["type"] == "namespace")
    plain = [tool["name"] for tool in sent if tool["type"] == "function"]
    grouped = [f"{group['name']}__{tool['name']}" for tool in group["tools"]]
    assert sorted(offered) == sorted([*plain, *grouped])


def test_what_a_turn_of_codex_becomes() -> None:
    """Reasoning and call are one message, whose result follows."""
    messages = read(BODIES["codex__third_turn_reasoning"]).messages
    assert messages is not None
    roles = [message["role"] for message in messages]
    assert roles == ["system", "system", "user", "user", *["assistant", "tool"] * 2]
    for message in messages[4::2]:
        assert message["reasoning_content"] == "pine thistle"
        assert len(message["tool_calls"]) == 1
