"""The official Anthropic client against the HTTP API over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from omlxd.api.app import create_app
from omlxd.api.ports import ServerSettings
from omlxd.errors import ContextOverflow, EngineFailed, QueueFull
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Finished,
    GenerateRequest,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from tests.fakes.fake_gateway import FakeGateway, completed
from tests.support.serving import ask, post, serving

HI: list[Any] = [{"role": "user", "content": "hi"}]
LS: Any = {"name": "ls", "input_schema": {"type": "object"}}
BODY = {"model": "small", "messages": HI, "max_tokens": 9}


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
async def port(gateway: FakeGateway) -> AsyncIterator[int]:
    async with serving(create_app(gateway)) as port:
        yield port


@pytest.fixture
async def client(port: int) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=f"http://127.0.0.1:{port}", api_key="dummy", max_retries=0
    ) as sdk:
        yield sdk


async def think_and_call(request: GenerateRequest) -> AsyncIterator[Event]:
    name = request.request_id
    yield Accepted(name, 7)
    yield ReasoningDelta(name, 0, "A list")
    yield ReasoningDelta(name, 0, " it is.")
    yield Delta(name, 0, "I look.")
    for number, path in enumerate(("a", "b")):
        yield ToolCallBegin(name, 0, number, "ls")
        yield ToolCallArguments(name, 0, number, '{"path":')
        yield ToolCallArguments(name, 0, number, f'"{path}"}}')
        yield ToolCallEnd(name, 0, number)
    yield Finished(name, 0, "tool_calls")
    yield completed(request, output_tokens=20)


async def test_a_message(gateway: FakeGateway, client: anthropic.AsyncAnthropic) -> None:
    """Cached tokens are counted apart from the others, and the id is that of the request."""
    message = await client.messages.create(model="small", messages=HI, max_tokens=9)
    assert message.model == "org/tiny"
    (block,) = message.content
    assert block.type == "text"
    assert block.text == "Hello, wörld!"
    assert message.stop_reason == "end_turn"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (3, 4, 4)
    (request,) = gateway.requests
    assert message.id == f"msg_{request.request_id.removeprefix('req_')}"
    assert message._request_id == request.request_id
    assert request.max_tokens == 9


async def test_a_stream_is_the_message(
    gateway: FakeGateway, client: anthropic.AsyncAnthropic
) -> None:
    """Thinking, text and two calls, all as without streaming but for the ids."""
    gateway.script = think_and_call
    wanted: Any = {"model": "small", "messages": HI, "max_tokens": 99, "tools": [LS]}
    whole = await client.messages.create(**wanted)
    async with client.messages.stream(**wanted) as stream:
        message = await stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", *["tool_use"] * 2]
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"path": "a"}, {"path": "b"}]
    assert len({call.id for call in calls}) == 2
    assert message.stop_reason == "tool_use"

    def shown(answer: anthropic.types.Message) -> Any:
        told = answer.model_dump(exclude={"id"})
        for block in told["content"]:
            block.pop("id", None)
            block.pop("parsed_output", None)
        return told

    assert shown(message) == shown(whole)


async def test_a_count(gateway: FakeGateway, client: anthropic.AsyncAnthropic) -> None:
    """It asks for nothing to be generated."""

    async def count(request: GenerateRequest) -> AsyncIterator[Event]:
        assert request.count_only
        yield Accepted(request.request_id, 41)
        yield Completed(request.request_id, Usage())

    gateway.script = count
    answer = await client.messages.count_tokens(model="small", messages=HI, tools=[LS])
    assert answer.input_tokens == 41
    assert [record.api for record in gateway.records] == ["count_tokens"]


async def test_an_overflow(gateway: FakeGateway, client: anthropic.AsyncAnthropic) -> None:
    """Streamed or not, it is a 400 with the words that clients look for."""

    async def refuse(request: GenerateRequest) -> AsyncIterator[Event]:
        raise ContextOverflow("x", prompt_tokens=70, max_context=64)
        yield

    gateway.script = refuse
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError) as refusal:
            await client.messages.create(model="small", messages=HI, max_tokens=9, stream=stream)
        body: Any = refusal.value.body
        assert body["error"] == {
            "type": "invalid_request_error",
            "message": "prompt is too long: 70 tokens > 64 maximum",
        }


async def test_a_failure_inside_the_stream(
    gateway: FakeGateway, client: anthropic.AsyncAnthropic
) -> None:
    """It reaches the client's code as an error, not as an end."""

    async def fail(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)
        yield Delta(request.request_id, 0, "Hel")
        raise EngineFailed("It broke.")

    gateway.script = fail
    stream = await client.messages.create(model="small", messages=HI, max_tokens=9, stream=True)
    for expected in ("message_start", "content_block_start", "content_block_delta"):
        assert (await anext(stream)).type == expected
    with pytest.raises(anthropic.APIStatusError, match=r"It broke\."):
        await anext(stream)


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"model": "nope"}, 404, "not_found_error"),
        ({"messages": [{"role": "tool", "content": ""}]}, 400, "invalid_request_error"),
        ({"model": "embedder"}, 400, "invalid_request_error"),
        ({"temperature": 3}, 400, "invalid_request_error"),
    ],
)
async def test_bad_requests(port: int, body: dict[str, Any], status: int, kind: str) -> None:
    """Refused on both routes, in one shape, with the request's id."""
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        answer = await post(port, path, {**BODY, **body})
        assert answer.status == status
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == kind
        assert answer.json()["request_id"] == answer.headers["request-id"]


async def test_a_full_queue(gateway: FakeGateway, client: anthropic.AsyncAnthropic) -> None:
    """Is an overload, with the time to come back after."""

    async def refuse(request: GenerateRequest) -> AsyncIterator[Event]:
        raise QueueFull("Too many requests wait.", retry_after_s=2)
        yield

    gateway.script = refuse
    with pytest.raises(anthropic.InternalServerError) as refusal:
        await client.messages.create(model="small", messages=HI, max_tokens=9)
    body: Any = refusal.value.body
    assert body["error"]["type"] == "overloaded_error"
    assert refusal.value.response.headers["retry-after"] == "2"


@pytest.mark.parametrize("path", ["/v1/messages?beta=true", "/v1/v1/messages"])
@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21", "tomorrow"])
@pytest.mark.parametrize("key", [("x-api-key", "k"), ("authorization", "Bearer k")])
async def test_any_version_either_key(
    gateway: FakeGateway, port: int, path: str, version: str, key: tuple[str, str]
) -> None:
    """Headers and queries of any client are let through."""
    gateway.settings = ServerSettings(api_keys=("k",), require_key_on_loopback=True)
    headers = [key, ("anthropic-version", version), ("anthropic-beta", "a-1,b-2")]
    assert (await post(port, path, BODY, headers=headers)).status == 200


async def test_probes_of_clients(port: int) -> None:
    """Claude Code asks for these when it starts, and goes on when there is nothing."""
    for path in ("/", "/api/hello"):
        assert (await ask(port, "HEAD", path)).status == 404
