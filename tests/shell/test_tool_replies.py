"""Replies that call tools, over HTTP, in every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from omlxd.api.app import create_app
from omlxd.api.ports import ServerSettings
from omlxd.ipc.messages import Accepted, Delta, Event, GenerateRequest
from omlxd.mcp.types import Limits
from tests.fakes.fake_gateway import LLM, FakeGateway
from tests.fakes.fake_tools import FakeTools, asked, hanging, lose, use_a_tool
from tests.support.asgi import Exchange
from tests.support.serving import post, serving

CHAT = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}
WITH = {**CHAT, "mcp": ["lab"]}
LOCKED = ServerSettings(api_keys=("secret",))
KEY = ("Authorization", "Bearer secret")


@pytest.fixture
def world() -> FakeTools:
    return FakeTools()


@pytest.fixture
async def gateway(world: FakeTools) -> AsyncIterator[FakeGateway]:
    pool = world.pool(asked(allowed=("echo",)), limits=Limits(max_rounds=2))
    gateway = FakeGateway(use_a_tool)
    gateway.tools = pool
    yield gateway
    await pool.close()


@pytest.fixture
async def port(gateway: FakeGateway) -> AsyncIterator[int]:
    async with serving(create_app(gateway)) as port:
        yield port


async def test_a_chat_that_uses_a_tool(gateway: FakeGateway, world: FakeTools, port: int) -> None:
    """The steps are reasoning, the answer is text, no call reaches the client, usage is summed."""
    body = (await post(port, "/v1/chat/completions", WITH)).json()
    (choice,) = body["choices"]
    assert choice["message"]["content"] == "It said echo {'a': 1}."
    assert choice["message"]["reasoning_content"] == (
        '\n[lab__echo {"a": 1}]\n\n[lab__echo gave 13 bytes]\n'
    )
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (14, 8)
    assert world.calls == [("lab", "echo", {"a": 1})]
    (record,) = gateway.records
    assert (record.status, record.prompt_tokens, record.output_tokens) == (200, 14, 8)


@pytest.mark.parametrize(
    ("path", "body", "step"),
    [
        ("/v1/chat/completions", WITH, b'"reasoning_content":"\\n[lab__echo '),
        ("/v1/messages", {**WITH, "max_tokens": 99}, b'"thinking":"\\n[lab__echo '),
        ("/v1/responses", {"model": "small", "input": "hi", "mcp": ["lab"]}, b"[lab__echo "),
    ],
)
async def test_every_dialect_streams_the_steps(
    port: int, path: str, body: dict[str, Any], step: bytes
) -> None:
    """Steps come as reasoning, and the same stream goes on with the answer."""
    answer = await post(port, path, {**body, "stream": True})
    assert answer.status == 200
    assert step in answer.body
    assert answer.body.index(step) < answer.body.index(b"It said")
    assert b"lab__echo gave 13 bytes" in answer.body


async def test_a_model_may_have_servers_of_its_own(
    gateway: FakeGateway, world: FakeTools, port: int
) -> None:
    """They are offered unless a request names others, or none; pages are never offered any."""
    gateway.served = (replace(LLM, mcp=("lab",)),)
    gateway.settings = ServerSettings(cors_origins=("http://page.example",))

    async def tools(body: dict[str, Any], *headers: tuple[str, str]) -> list[Any]:
        assert (await post(port, "/v1/chat/completions", body, headers=[*headers])).status == 200
        return gateway.requests[-1].tools

    assert len(await tools(CHAT)) == 1
    gateway.script = FakeGateway().script
    assert await tools({**CHAT, "mcp": []}) == []
    assert await tools(CHAT, ("Origin", "http://page.example")) == []
    assert (await post(port, "/v1/completions", {"model": "small", "prompt": "x"})).status == 200


async def test_a_model_s_server_that_is_off_is_told_in_the_reply(
    gateway: FakeGateway, world: FakeTools, port: int
) -> None:
    """The model still answers; nobody has to guess why it has no tools."""
    gateway.served = (replace(LLM, mcp=("lab",)),)
    gateway.script = FakeGateway().script
    world.broken["lab"] = OSError("no way")
    message = (await post(port, "/v1/chat/completions", CHAT)).json()["choices"][0]["message"]
    assert message["content"] == "Hello, wörld!"
    assert "tool server lab is off: it cannot be reached: no way" in message["reasoning_content"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/chat/completions", {**CHAT, "mcp": "lab"}, 400, "a list of names"),
        ("/v1/chat/completions", {**CHAT, "mcp": [1]}, 400, "a list of names"),
        ("/v1/chat/completions", {**CHAT, "mcp": ["nope"]}, 400, "no tool server 'nope'"),
        ("/v1/chat/completions", {**WITH, "n": 2}, 400, "has one choice"),
        (
            "/v1/completions",
            {"model": "small", "prompt": "x", "mcp": ["lab"]},
            400,
            "plain prompt",
        ),
    ],
)
async def test_replies_that_cannot_use_tools_are_refused(
    world: FakeTools, port: int, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    """`mcp` is honoured or refused, never dropped."""
    answer = await post(port, path, body)
    error = answer.json()["error"]
    assert (answer.status, words in error["message"]) == (status, True), error


async def test_a_server_that_was_asked_for_and_is_off_fails_the_request(
    world: FakeTools, port: int
) -> None:
    """The client named it, so it is told."""
    world.broken["lab"] = OSError("no way")
    answer = await post(port, "/v1/chat/completions", WITH)
    assert (answer.status, "no way" in answer.body.decode()) == (503, True)


async def test_naming_servers_asks_for_a_key_on_loopback(gateway: FakeGateway, port: int) -> None:
    """A reply that may call tools is under the rule of calls by hand."""
    gateway.settings = LOCKED
    assert (await post(port, "/v1/chat/completions", WITH)).status == 401
    assert (await post(port, "/v1/chat/completions", WITH, headers=[KEY])).status == 200


async def test_a_page_may_not_name_servers(gateway: FakeGateway, port: int) -> None:
    """A listed origin may chat, and has no tools."""
    gateway.settings = ServerSettings(cors_origins=("http://page.example",))
    headers = [("Origin", "http://page.example")]
    assert (await post(port, "/v1/chat/completions", WITH, headers=headers)).status == 403


async def test_a_model_that_calls_for_ever_is_stopped(gateway: FakeGateway, port: int) -> None:
    """After the rounds it may have, it is given no tool to call, and the reply ends."""

    async def again(request: GenerateRequest) -> AsyncIterator[Event]:
        first = GenerateRequest(request_id=request.request_id, model="", messages=[{"role": ""}])
        async for event in use_a_tool(first):
            yield event

    gateway.script = again
    body = (await post(port, "/v1/chat/completions", WITH)).json()
    assert [request.tool_choice.mode for request in gateway.requests] == ["auto", "auto", "none"]
    message = body["choices"][0]["message"]
    assert "was not run: the reply called tools 2 times" in message["reasoning_content"]
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_a_failing_tool_does_not_end_the_reply(
    gateway: FakeGateway, world: FakeTools, port: int
) -> None:
    """The model is told what happened."""
    world.answer = lose
    body = (await post(port, "/v1/chat/completions", WITH)).json()
    content = body["choices"][0]["message"]["content"]
    assert content.startswith("It said Error: tool server lab was lost under the call")


async def test_leaving_cancels_the_call_under_way(gateway: FakeGateway, world: FakeTools) -> None:
    """The tool is cancelled, and the model is not asked again."""
    begun, cancelled = asyncio.Event(), asyncio.Event()
    world.answer = hanging(begun, cancelled)
    exchange = Exchange(create_app(gateway), "/v1/chat/completions", {**WITH, "stream": True})
    await begun.wait()
    exchange.gone.set()
    await cancelled.wait()
    await exchange.task
    assert len(gateway.requests) == 1
    assert [record.status for record in gateway.records] == [499]


async def test_leaving_cancels_the_run_under_way(gateway: FakeGateway) -> None:
    """A client that goes away while the model speaks ends that run at once."""
    spoke = asyncio.Event()

    async def speak(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)
        spoke.set()
        await asyncio.Event().wait()

    gateway.script = speak
    exchange = Exchange(create_app(gateway), "/v1/chat/completions", {**WITH, "stream": True})
    await spoke.wait()
    exchange.gone.set()
    await exchange.task
    assert len(gateway.cancelled) == 1


async def test_leaving_cancels_the_run_of_a_client_that_does_not_read(
    gateway: FakeGateway,
) -> None:
    """Also while nothing is waited for but the client, the run has ended when the reply has."""

    async def speak(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)
        while True:
            yield Delta(request.request_id, 0, "x")

    gateway.script = speak
    exchange = Exchange(create_app(gateway), "/v1/chat/completions", {**WITH, "stream": True})
    exchange.reading.clear()
    await exchange.until(lambda: bool(exchange.sent))
    exchange.gone.set()
    await exchange.task
    assert len(gateway.cancelled) == 1


async def test_the_request_s_own_limit_holds_for_calls(
    gateway: FakeGateway, world: FakeTools, port: int
) -> None:
    """server.request_timeout ends a reply in the middle of a call, too."""
    cancelled = asyncio.Event()
    world.answer = hanging(asyncio.Event(), cancelled)
    gateway.settings = ServerSettings(request_timeout_s=0.3)
    answer = await post(port, "/v1/chat/completions", WITH)
    assert (answer.status, "after 0.3 s" in answer.body.decode()) == (504, True)
    assert cancelled.is_set()


async def test_two_replies_at_a_time(gateway: FakeGateway, world: FakeTools, port: int) -> None:
    """They share the server, and each gets its own result."""
    answers = await asyncio.gather(
        *(post(port, "/v1/chat/completions", WITH) for _ in range(2)),
        post(port, "/v1/mcp/execute", {"tool_name": "lab__echo", "arguments": {"b": 2}}),
    )
    assert [answer.status for answer in answers] == [200] * 3
    assert answers[2].json()["content"] == "echo {'b': 2}"
    assert world.events == ["start lab"]
