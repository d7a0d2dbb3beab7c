"""/v1/mcp/* and replies that call tools, over HTTP: who may use them, and what comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from omlxd.api.app import create_app
from omlxd.api.ports import ServerSettings
from omlxd.ipc.messages import (
    Accepted,
    Delta,
    Event,
    Finished,
    GenerateRequest,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
)
from omlxd.mcp.types import Limits, Result
from tests.fakes.fake_gateway import LLM, FakeGateway, completed
from tests.fakes.fake_tools import FakeTools, asked, lose
from tests.support.asgi import Exchange
from tests.support.serving import JSON_BODY, ask, post, serving

CHAT = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}
WITH = {**CHAT, "mcp": ["lab"]}
EXECUTE = {"tool_name": "lab__echo", "arguments": {"a": 1}}
LOCKED = ServerSettings(api_keys=("secret",))
KEY = ("Authorization", "Bearer secret")
TOOL_ROUTES = [
    ("GET", "/v1/mcp/servers"),
    ("GET", "/v1/mcp/tools"),
    ("POST", "/v1/mcp/execute"),
]
FROM_PAGES = [
    ("Origin", "http://evil.example"),
    ("Origin", "http://127.0.0.1"),
    ("Origin", "null"),
    ("Sec-Fetch-Site", "cross-site"),
    ("Sec-Fetch-Site", "same-origin"),
]


async def use_a_tool(request: GenerateRequest) -> AsyncIterator[Event]:
    """Calls lab__echo; once it has a result, says it and is done."""
    assert request.messages is not None
    last = request.messages[-1]
    yield Accepted(request.request_id, 7)
    if last["role"] == "tool":
        yield Delta(request.request_id, 0, f"It said {last['content']}.")
        yield Finished(request.request_id, 0, "stop")
    else:
        yield ToolCallBegin(request.request_id, 0, 0, "lab__echo", 1)
        yield ToolCallArguments(request.request_id, 0, 0, '{"a": 1}', 3)
        yield ToolCallEnd(request.request_id, 0, 0)
        yield Finished(request.request_id, 0, "tool_calls")
    yield completed(request, output_tokens=4)


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


def request_for(method: str) -> dict[str, Any]:
    if method == "GET":
        return {"headers": []}
    return {"headers": JSON_BODY, "body": json.dumps(EXECUTE).encode()}


# ------------------------------------------------------------------ who may


@pytest.mark.parametrize(("method", "path"), TOOL_ROUTES)
async def test_a_key_is_asked_for_on_loopback_too(
    gateway: FakeGateway, world: FakeTools, port: int, method: str, path: str
) -> None:
    """Wherever keys are set, whoever asks; nothing is started without one."""
    gateway.settings = LOCKED
    request = request_for(method)
    assert (await ask(port, method, path, **request)).status == 401
    assert world.events == []
    request["headers"] = [*request["headers"], KEY]
    assert (await ask(port, method, path, **request)).status == 200


@pytest.mark.parametrize(("method", "path"), TOOL_ROUTES)
@pytest.mark.parametrize("header", FROM_PAGES)
async def test_no_web_page_reaches_tools(
    gateway: FakeGateway,
    world: FakeTools,
    port: int,
    method: str,
    path: str,
    header: tuple[str, str],
) -> None:
    """Not from a listed origin either, and not with an image or a link that sends no Origin."""
    gateway.settings = ServerSettings(cors_origins=("http://evil.example",))
    request = request_for(method)
    request["headers"] = [*request["headers"], header]
    answer = await ask(port, method, path, **request)
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers
    assert world.events == []


async def test_no_preflight_lets_a_page_in(gateway: FakeGateway, port: int) -> None:
    """A browser that asks first is told no."""
    gateway.settings = ServerSettings(cors_origins=("http://page.example",))
    headers = [("Origin", "http://page.example"), ("Access-Control-Request-Method", "POST")]
    assert (await ask(port, "OPTIONS", "/v1/mcp/execute", headers=headers)).status == 403
    assert (await ask(port, "OPTIONS", "/v1/chat/completions", headers=headers)).status == 204


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_a_call_is_json(world: FakeTools, port: int, media: str | None) -> None:
    """What a form can send is not read."""
    headers = [] if media is None else [("Content-Type", media)]
    body = json.dumps(EXECUTE).encode()
    answer = await ask(port, "POST", "/v1/mcp/execute", headers=headers, body=body)
    assert (answer.status, world.events) == (415, [])


async def test_a_rebound_name_is_refused(world: FakeTools, port: int) -> None:
    """The Host header has to name us."""
    answer = await ask(port, "GET", "/v1/mcp/tools", host="evil.example")
    assert (answer.status, world.events) == (403, [])


# ------------------------------------------------------------------ the routes


async def test_servers_and_tools_are_listed(world: FakeTools, port: int) -> None:
    """Servers with their state, which starts nothing; tools that may be used, which does."""
    (server,) = (await ask(port, "GET", "/v1/mcp/servers")).json()["servers"]
    assert (server["name"], server["state"], server["tools"]) == ("lab", "idle", None)
    assert world.events == []
    tools = (await ask(port, "GET", "/v1/mcp/tools")).json()
    assert [(tool["name"], tool["tool"]) for tool in tools["tools"]] == [("lab__echo", "echo")]
    (server,) = (await ask(port, "GET", "/v1/mcp/servers")).json()["servers"]
    assert (server["state"], server["refused_tools"]) == ("ready", ["secret"])


async def test_a_server_that_is_off_is_listed_with_its_reason(world: FakeTools, port: int) -> None:
    """The list of tools has the others, and says who is missing and why."""
    world.broken["lab"] = OSError("no way")
    tools = (await ask(port, "GET", "/v1/mcp/tools")).json()
    assert tools["tools"] == []
    assert "no way" in tools["off"][0]["reason"]
    (server,) = (await ask(port, "GET", "/v1/mcp/servers")).json()["servers"]
    assert (server["state"], "no way" in server["reason"]) == ("backoff", True)


async def test_a_call_by_hand(gateway: FakeGateway, world: FakeTools, port: int) -> None:
    """By the offered name, or by server and tool; the server's own error is a result."""
    answer = await post(port, "/v1/mcp/execute", EXECUTE)
    assert answer.json() == {
        "tool_name": "lab__echo",
        "content": "echo {'a': 1}",
        "is_error": False,
        "error_message": None,
    }
    by_parts = await post(port, "/v1/mcp/execute", {"server": "lab", "tool": "echo"})
    assert by_parts.json()["content"] == "echo {}"

    async def fail(name: str, arguments: dict[str, Any]) -> Result:
        return Result(text="no such file", is_error=True)

    world.answer = fail
    answer = await post(port, "/v1/mcp/execute", EXECUTE)
    assert (answer.status, answer.json()["error_message"]) == (200, "no such file")
    world.answer = lose
    assert (await post(port, "/v1/mcp/execute", EXECUTE)).status == 503


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"tool_name": "lab__secret"}, 403, "allow-list"),
        ({"tool_name": "lab__nope"}, 404, "lab__nope"),
        ({"tool_name": "nope__x"}, 404, "no tool server 'nope'"),
        ({"server": "lab", "tool": "secret"}, 403, "allow-list"),
        ({"tool_name": 1}, 400, "tool_name"),
        ({"tool_name": "lab__echo", "server": "lab"}, 400, "tool_name"),
        ({"tool_name": "lab__echo", "arguments": []}, 400, "arguments"),
    ],
)
async def test_calls_that_are_refused(
    world: FakeTools, port: int, body: dict[str, Any], status: int, words: str
) -> None:
    """Each says which rule or name it was, and nothing is run."""
    answer = await post(port, "/v1/mcp/execute", body)
    assert (answer.status, words in answer.json()["error"]["message"]) == (status, True)
    assert world.calls == []


async def test_a_client_that_leaves_cancels_its_call(
    gateway: FakeGateway, world: FakeTools
) -> None:
    """The tool is not left running for nobody."""
    begun, cancelled = asyncio.Event(), asyncio.Event()
    world.answer = hanging(begun, cancelled)
    exchange = Exchange(create_app(gateway), "/v1/mcp/execute", EXECUTE)
    await begun.wait()
    exchange.gone.set()
    await cancelled.wait()
    await exchange.task


def hanging(begun: asyncio.Event, cancelled: asyncio.Event) -> Any:
    async def hang(name: str, arguments: dict[str, Any]) -> Result:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("it was not cancelled")

    return hang


# ------------------------------------------------------------------ replies


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
