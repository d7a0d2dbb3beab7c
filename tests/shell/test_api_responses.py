"""The official OpenAI client and /v1/responses over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from omlxd.api.app import create_app
from omlxd.errors import ContextOverflow, EngineFailed
from omlxd.ipc.messages import (
    Accepted,
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

LS: Any = {"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": False}
PATCH: Any = {"type": "custom", "name": "patch", "format": {"type": "text"}}


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


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
    yield ReasoningDelta(name, 0, "A list")
    yield ReasoningDelta(name, 0, " it is.")
    yield Delta(name, 0, "I look.")
    for number, (tool, key) in enumerate((("ls", "path"), ("patch", "input"))):
        yield ToolCallBegin(name, 0, number, tool)
        yield ToolCallArguments(name, 0, number, f'{{"{key}":')
        yield ToolCallArguments(name, 0, number, '"a"}')
        yield ToolCallEnd(name, 0, number)
    yield Finished(name, 0, "tool_calls")
    yield completed(request, output_tokens=20)


async def test_a_response(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """The prompt's tokens are counted whole, cached ones included."""
    answer = await client.responses.create(model="small", input="hi", max_output_tokens=9)
    assert answer.output_text == "Hello, wörld!"
    assert (answer.model, answer.status) == ("org/tiny", "completed")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 4)
    assert answer.usage.input_tokens_details.cached_tokens == 4
    assert answer.usage.total_tokens == 11
    (request,) = gateway.requests
    assert answer.id == f"resp_{request.request_id.removeprefix('req_')}"
    assert request.max_tokens == 9
    assert [record.api for record in gateway.records] == ["responses"]


async def test_a_stream_is_the_response(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """Reasoning, text and two calls, all as without streaming but for the ids."""
    gateway.script = think_and_call
    wanted: Any = {"model": "small", "input": "hi", "tools": [LS, PATCH]}
    whole = await client.responses.create(**wanted)
    async with client.responses.stream(**wanted) as stream:
        streamed = await stream.get_final_response()
    kinds = ["reasoning", "message", "function_call", "custom_tool_call"]
    assert [item.type for item in streamed.output] == kinds
    call, patch = (item.to_dict() for item in streamed.output[2:])
    assert (call["name"], call["arguments"]) == ("ls", '{"path":"a"}')
    assert (patch["name"], patch["input"]) == ("patch", "a")
    assert call["call_id"] != patch["call_id"]

    def shown(answer: Any) -> Any:
        told = answer.to_dict()
        for part in (told, *told["output"]):
            for key in ("id", "call_id", "created_at", "parsed_arguments"):
                part.pop(key, None)
            for piece in part.get("content", []):
                piece.pop("parsed", None)
        return told

    assert shown(streamed) == shown(whole)


async def test_a_turn_goes_back_as_it_came(
    gateway: FakeGateway, client: openai.AsyncOpenAI
) -> None:
    """What the client sends of the last answer is the model's own turn, sealed thoughts too."""
    gateway.script = think_and_call
    wanted: Any = {"model": "small", "tools": [LS, PATCH]}
    wanted["include"] = ["reasoning.encrypted_content"]
    first = await client.responses.create(input="hi", **wanted)
    items: list[Any] = [{"role": "user", "content": "hi"}]
    for item in first.output:
        told = item.to_dict()
        if told["type"] == "reasoning":  # as clients do that do not show it
            told["summary"] = []
        items.append(told)
    for call in first.output[2:]:
        answer = {"type": f"{call.type}_output", "output": "done"}
        items.append({**answer, "call_id": call.to_dict()["call_id"]})
    await client.responses.create(input=items, **wanted)
    messages = gateway.requests[-1].messages
    assert messages is not None
    user, turn, *results = messages
    assert user == {"role": "user", "content": "hi"}
    assert (turn["reasoning_content"], turn["content"]) == ("A list it is.", "I look.")
    functions = [call["function"] for call in turn["tool_calls"]]
    assert functions == [
        {"name": "ls", "arguments": '{"path":"a"}'},
        {"name": "patch", "arguments": '{"input":"a"}'},
    ]
    assert [result["name"] for result in results] == ["ls", "patch"]


class Number(BaseModel):
    n: int


async def test_a_schema(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """It is asked for, and the client's own type comes out."""

    async def count(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)
        yield Delta(request.request_id, 0, '{"n": 3}')
        yield Finished(request.request_id, 0, "stop")
        yield completed(request, output_tokens=5)

    gateway.script = count
    answer = await client.responses.parse(model="small", input="hi", text_format=Number)
    assert answer.output_parsed == Number(n=3)
    constraint = gateway.requests[-1].constraint
    assert constraint is not None
    assert constraint.value["properties"]["n"]["type"] == "integer"


async def test_a_reply_that_was_cut(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """Streamed or not, it is incomplete and says why."""

    async def cut(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)
        yield Delta(request.request_id, 0, "Hel")
        yield Finished(request.request_id, 0, "length")
        yield completed(request, output_tokens=1)

    gateway.script = cut
    whole: Any = await client.responses.create(model="small", input="hi", max_output_tokens=1)
    stream = await client.responses.create(
        model="small", input="hi", max_output_tokens=1, stream=True
    )
    last: Any = [event async for event in stream][-1]
    assert last.type == "response.incomplete"
    for answer in (whole, last.response):
        assert answer.status == "incomplete"
        assert answer.incomplete_details.reason == "max_output_tokens"
        assert answer.output_text == "Hel"


async def test_an_overflow(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """Streamed or not, it is a 400 with the code that clients look for."""

    async def refuse(request: GenerateRequest) -> AsyncIterator[Event]:
        raise ContextOverflow("x", prompt_tokens=70, max_context=64)
        yield

    gateway.script = refuse
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="maximum context length is 64") as refusal:
            await client.responses.create(model="small", input="hi", stream=stream)
        assert refusal.value.code == "context_length_exceeded"
        assert refusal.value.param == "input"


async def test_a_failure_inside_the_stream(
    gateway: FakeGateway, client: openai.AsyncOpenAI
) -> None:
    """It is the last event; a client cannot take it for an end."""

    async def fail(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)
        yield Delta(request.request_id, 0, "Hel")
        raise EngineFailed("It broke.")

    gateway.script = fail
    stream = await client.responses.create(model="small", input="hi", stream=True)
    *_, last = [event async for event in stream]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "It broke."


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "nope"}, 404, "model"),
        ({"model": "embedder"}, 400, "model"),
        ({"previous_response_id": "resp_1"}, 400, "previous_response_id"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, 400, "input[0]"),
        ({"input": None}, 400, "input"),
    ],
)
async def test_bad_requests(port: int, body: dict[str, Any], status: int, param: str) -> None:
    """Refused by name, in OpenAI's shape."""
    answer = await post(port, "/v1/responses", {"model": "small", "input": "hi", **body})
    assert answer.status == status
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["codex__third_turn_reasoning", "opencode__responses_third_turn"])
async def test_clients_own_bodies(port: int, name: str) -> None:
    """They are answered as they came, with all that ends a stream."""
    body = {**client_bodies("responses")[name], "model": "small"}
    answer = await post(port, "/v1/v1/responses", body)
    assert answer.status == 200
    last = answer.body.decode().rstrip("\n").rpartition("\n\n")[2]
    assert last.startswith("event: response.completed\ndata: {")
