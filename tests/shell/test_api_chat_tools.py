"""The official OpenAI client and tools, reasoning and formats in chat, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from omlxd.api.app import create_app
from omlxd.ipc.messages import (
    Accepted,
    Constraint,
    Delta,
    Event,
    Finished,
    GenerateRequest,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
)
from tests.fakes.fake_gateway import FakeGateway, completed
from tests.support.client_bodies import client_bodies
from tests.support.serving import post, serving

HI: list[Any] = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
LS: Any = {
    "type": "function",
    "function": {
        "name": "ls",
        "parameters": {**SCHEMA, "additionalProperties": False},
        "strict": True,
    },
}


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(think_and_call)


@pytest.fixture
async def port(gateway: FakeGateway) -> AsyncIterator[int]:
    async with serving(create_app(gateway)) as port:
        yield port


@pytest.fixture
async def client(port: int) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1", api_key="dummy", max_retries=0
    ) as sdk:
        yield sdk


async def think_and_call(request: GenerateRequest) -> AsyncIterator[Event]:
    name = request.request_id
    yield Accepted(name, 7)
    for index in reversed(range(request.n)):
        yield ReasoningDelta(name, index, "A list")
        yield ReasoningDelta(name, index, " it is.")
        for number, path in enumerate("ab"):
            yield ToolCallBegin(name, index, number, "ls")
            yield ToolCallArguments(name, index, number, '{"path":')
            yield ToolCallArguments(name, index, number, f'"{path}"}}')
            yield ToolCallEnd(name, index, number)
        yield Finished(name, index, "tool_calls")
    yield completed(request, output_tokens=20)


async def test_a_stream_is_the_completion(client: openai.AsyncOpenAI) -> None:
    """Reasoning and two calls in each of two choices, all as without streaming but for the ids."""
    wanted: Any = {"model": "small", "messages": HI, "tools": [LS], "n": 2}
    whole = await client.chat.completions.parse(**wanted)
    usage: Any = {"stream_options": {"include_usage": True}}
    async with client.chat.completions.stream(**wanted, **usage) as stream:
        streamed = await stream.get_final_completion()
    assert whole.usage == streamed.usage is not None
    ids: set[str] = set()
    for one, other in zip(whole.choices, streamed.choices, strict=True):
        assert one.finish_reason == other.finish_reason == "tool_calls"
        for message in (one.message, other.message):
            assert not message.content
            assert message.to_dict()["reasoning_content"] == "A list it is."
            assert message.tool_calls is not None
            functions = [call.function for call in message.tool_calls]
            assert [function.name for function in functions] == ["ls", "ls"]
            assert [function.parsed_arguments for function in functions] == [
                {"path": "a"},
                {"path": "b"},
            ]
            ids.update(call.id for call in message.tool_calls)
    assert len(ids) == 8
    assert whole.choices[0].message.content is None


async def test_a_turn_goes_back_as_it_came(
    gateway: FakeGateway, client: openai.AsyncOpenAI
) -> None:
    """What the client sends of the last answer is the model's own turn, thoughts too."""
    first = await client.chat.completions.create(model="small", messages=HI, tools=[LS])
    turn: Any = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "done"} for call in turn.tool_calls
    ]
    messages = [*HI, turn, *reversed(results)]  # in whatever order they finished
    await client.chat.completions.create(model="small", messages=messages, tools=[LS])
    assert gateway.requests[-1].messages is not None
    _, own, *answers = gateway.requests[-1].messages
    assert (own["reasoning_content"], own["content"]) == ("A list it is.", "")
    assert [call["function"] for call in own["tool_calls"]] == [
        {"name": "ls", "arguments": '{"path":"a"}'},
        {"name": "ls", "arguments": '{"path":"b"}'},
    ]
    called = [call["id"] for call in own["tool_calls"]]
    assert [answer["tool_call_id"] for answer in answers] == called[::-1]


class Number(BaseModel):
    n: int


async def test_a_format(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """The client's own helper sends a schema, and reads the answer by it, streamed or not."""

    async def count(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)
        yield Delta(request.request_id, 0, '{"n":')
        yield Delta(request.request_id, 0, "7}")
        yield Finished(request.request_id, 0, "stop")
        yield completed(request, output_tokens=4)

    gateway.script = count
    wanted: Any = {"model": "small", "messages": HI, "response_format": Number}
    whole = await client.chat.completions.parse(**wanted)
    async with client.chat.completions.stream(**wanted) as stream:
        streamed = await stream.get_final_completion()
    for answer in (whole, streamed):
        assert answer.choices[0].message.parsed == Number(n=7)
    for request in gateway.requests:
        constraint = request.constraint
        assert constraint is not None
        assert constraint == Constraint(
            kind="json_schema",
            value=constraint.value,
            param="response_format.json_schema.schema",
        )
        assert constraint.value["properties"]["n"]["type"] == "integer"


@pytest.mark.parametrize("name", client_bodies("chat"))
async def test_recorded_clients_are_answered(port: int, name: str) -> None:
    """Whatever they sent along, as a stream or whole."""
    body = {**client_bodies("chat")[name], "model": "small"}
    answer = await post(port, "/v1/chat/completions", body)
    assert answer.status == 200
    if body["stream"]:
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert (b'"usage":{' in answer.body) == ("stream_options" in body)
    else:
        (choice,) = answer.json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
