"""/v1/mcp/* over HTTP: who may use it, and what comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from omlxd.api.app import create_app
from omlxd.api.ports import ServerSettings
from omlxd.mcp.types import Limits, Result
from tests.fakes.fake_gateway import FakeGateway
from tests.fakes.fake_tools import FakeTools, asked, hanging, lose, use_a_tool
from tests.support.asgi import Exchange
from tests.support.serving import JSON_BODY, ask, post, serving

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
