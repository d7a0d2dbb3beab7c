"""Routes and access over a real socket: what is there, what is refused, and how."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from omlxd.api.app import create_app
from omlxd.api.body import MAX_BODY_BYTES
from omlxd.api.ports import Readiness, ServedModel, ServerSettings
from omlxd.api.routes import route_table
from omlxd.api.stream import Pace, WallClock
from tests.fakes.fake_gateway import FakeGateway
from tests.fakes.fake_tools import FakeTools, asked
from tests.support.serving import JSON_BODY, ask, parse_answer, post, serving

CHAT = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}
LOCKED = ServerSettings(api_keys=("secret",), require_key_on_loopback=True, metrics=True)
CALL = {"tool_name": "lab__echo"}
KEY = ("Authorization", "Bearer secret")


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
async def port(gateway: FakeGateway) -> AsyncIterator[int]:
    async with serving(create_app(gateway)) as port:
        yield port


def routes() -> list[tuple[str, str, str]]:
    rows = route_table(FakeGateway(), clock=WallClock(), pace=Pace())
    return [(row.method, row.path.replace("{id:path}", "org/tiny"), row.scope) for row in rows]


def body_for(method: str, path: str) -> dict[str, Any]:
    if method == "GET":
        return {}
    model = {"/v1/embeddings": "embedder", "/v1/rerank": "ranker", "/rerank": "ranker"}
    ranked = {"query": "q", "documents": ["d"]}
    body = {**CHAT, "prompt": "hi", "input": "hi", **CALL, **ranked}
    body["model"] = model.get(path, "small")
    return {"headers": JSON_BODY, "body": json.dumps(body).encode()}


@pytest.mark.parametrize(("method", "path", "scope"), routes())
async def test_every_route_denies_by_default(
    gateway: FakeGateway, port: int, method: str, path: str, scope: str
) -> None:
    """Each route in the table asks for a key unless it is marked open, and works with one."""
    gateway.settings = LOCKED
    gateway.tools = FakeTools().pool(asked())
    request = body_for(method, path)
    without = await ask(port, method, path, **request)
    assert without.status == (200 if scope == "open" else 401)
    headers = [*request.pop("headers", []), KEY]
    assert (await ask(port, method, path, headers=headers, **request)).status == 200


def test_only_probes_are_open() -> None:
    """Nothing but the two probes answers without a key."""
    assert [path for _, path, scope in routes() if scope == "open"] == ["/healthz", "/readyz"]


@pytest.mark.parametrize("path", ["/v1/nope", "/", "/docs", "/v1/chat/completions/", "/healthz/x"])
async def test_unknown_paths_ask_for_a_key_too(gateway: FakeGateway, port: int, path: str) -> None:
    """A stranger learns nothing of what exists; with a key the 404 names the routes."""
    gateway.settings = LOCKED
    assert (await ask(port, "GET", path)).status == 401
    answer = await ask(port, "GET", path, headers=[KEY])
    assert answer.status == 404
    error = answer.json()["error"]
    assert error["code"] == "not_found"
    assert "POST /v1/chat/completions" in error["message"]
    assert "GET /v1/models/{id}" in error["message"]


async def test_errors_use_the_familys_envelope(port: int) -> None:
    """Under /v1/messages an error has Anthropic's shape, also for a path that is none."""
    answer = await post(port, "/v1/messages/batches", CHAT)
    assert answer.status == 404
    body = answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    assert body["request_id"] == answer.headers["x-request-id"] == answer.headers["request-id"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("GET", "/v1/chat/completions", {"POST"}), ("DELETE", "/v1/models", {"GET", "HEAD"})],
)
async def test_wrong_methods(port: int, method: str, path: str, allow: set[str]) -> None:
    """A route asked with another method is a 405 that says which it takes."""
    answer = await ask(port, method, path)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == allow
    assert answer.json()["error"]["code"] == "method_not_allowed"


async def test_doubled_prefix(port: int) -> None:
    """A base URL that already ends in /v1 works, on every route."""
    assert (await post(port, "/v1/v1/chat/completions", CHAT)).status == 200
    assert (await ask(port, "GET", "/v1/v1/models/org%2Ftiny")).json()["id"] == "org/tiny"
    assert (await ask(port, "GET", "/v1/v1/v1/models")).status == 404


async def test_a_model_that_is_not_there_is_refused_in_one_way(port: int) -> None:
    """Whether it is looked at or used, the same words say what there is."""
    looked_at = await ask(port, "GET", "/v1/models/nope")
    used = await post(port, "/v1/chat/completions", CHAT | {"model": "nope"})
    assert looked_at.status == used.status == 404
    assert looked_at.json() == used.json()
    assert "does not exist; there are: org/tiny" in used.json()["error"]["message"]


async def test_request_ids(gateway: FakeGateway, port: int) -> None:
    """Every answer carries an id of its own, and the record has the same."""
    first = await post(port, "/v1/chat/completions", CHAT)
    second = await post(port, "/v1/chat/completions", {})
    ids = [answer.headers["x-request-id"] for answer in (first, second)]
    assert [record.request_id for record in gateway.records] == ids
    assert len(set(ids)) == 2
    assert all(request_id.startswith("req_") for request_id in ids)


async def test_probes_name_no_models(gateway: FakeGateway, port: int) -> None:
    """Alive and ready are plain words, even when the reason names a model."""
    assert (await ask(port, "GET", "/healthz")).json() == {"status": "ok"}
    assert (await ask(port, "GET", "/readyz")).status == 200
    gateway.ready = Readiness(False, "org/tiny is loading")
    answer = await ask(port, "GET", "/readyz")
    assert (answer.status, answer.json()) == (503, {"status": "not ready"})


async def test_metrics_only_when_asked_for(gateway: FakeGateway, port: int) -> None:
    """The metrics route follows the setting, live."""
    assert (await ask(port, "GET", "/metrics")).status == 404
    gateway.settings = ServerSettings(metrics=True)
    answer = await ask(port, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"omlxd_requests_running" in answer.body


async def test_hosts(port: int) -> None:
    """A rebound domain is refused before routing; a missing Host is a bad request."""
    for path in ("/healthz", "/v1/models", "/nope"):
        assert (await ask(port, "GET", path, host="evil.example")).status == 403
        assert (await ask(port, "GET", path, host=None)).status == 400
    twice = await ask(port, "GET", "/healthz", headers=[("Host", "evil.example")])
    assert twice.status == 400


async def test_foreign_pages(gateway: FakeGateway, port: int) -> None:
    """A page that is not listed is refused, its preflight too, and nothing runs."""
    evil = ("Origin", "http://evil.example")
    answer = await post(port, "/v1/chat/completions", CHAT, headers=[evil])
    assert answer.status == 403
    preflight = [evil, ("Access-Control-Request-Method", "POST")]
    answer = await ask(port, "OPTIONS", "/v1/chat/completions", headers=preflight)
    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert gateway.requests == []


async def test_listed_pages(gateway: FakeGateway, port: int) -> None:
    """A listed page gets its preflight without a key, then CORS headers on every answer."""
    gateway.settings = ServerSettings(
        api_keys=("secret",), require_key_on_loopback=True, cors_origins=("https://app.example",)
    )
    origin = ("Origin", "https://app.example")
    asked = [
        origin,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization, x-stainless-lang"),
    ]
    preflight = await ask(port, "OPTIONS", "/v1/chat/completions", headers=asked)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "x-stainless-lang" in preflight.headers["access-control-allow-headers"]
    answer = await post(port, "/v1/chat/completions", CHAT, headers=[origin, KEY])
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert answer.headers["vary"] == "origin"
    assert (await post(port, "/v1/chat/completions", CHAT, headers=[origin])).status == 401


async def test_same_origin_needs_no_listing(port: int) -> None:
    """Our own page is let through without CORS headers."""
    headers = [("Origin", f"http://127.0.0.1:{port}")]
    answer = await ask(port, "GET", "/v1/models", host=f"127.0.0.1:{port}", headers=headers)
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_forwarding_headers_take_trust_away(gateway: FakeGateway, port: int) -> None:
    """Behind a proxy on this machine a key is asked, whatever the header claims."""
    gateway.settings = ServerSettings(api_keys=("secret",))
    assert (await ask(port, "GET", "/v1/models")).status == 200
    forwarded = ("X-Forwarded-For", "127.0.0.1")
    assert (await ask(port, "GET", "/v1/models", headers=[forwarded])).status == 401
    assert (await ask(port, "GET", "/v1/models", headers=[forwarded, KEY])).status == 200


async def test_bodies(gateway: FakeGateway, port: int) -> None:
    """A body must be JSON, say so, be an object, and keep within the limit."""
    path = "/v1/chat/completions"
    raw = json.dumps(CHAT).encode()
    plain = await ask(port, "POST", path, headers=[("Content-Type", "text/plain")], body=raw)
    assert plain.status == 415
    broken = await post(port, path, b'{"model": "small",}')
    assert broken.status == 400
    assert "byte 18" in broken.json()["error"]["message"]
    assert (await post(port, path, b'{"temperature": NaN}')).status == 400
    assert (await post(port, path, [CHAT])).status == 400
    assert [record.status for record in gateway.records] == [415, 400, 400, 400]


async def test_a_defect_on_a_reading_route(gateway: FakeGateway, port: int) -> None:
    """An unforeseen exception is a 500 in the envelope, without its words."""

    def broken() -> tuple[ServedModel, ...]:
        raise ZeroDivisionError("oops")

    gateway.models = broken  # type: ignore[method-assign]
    answer = await ask(port, "GET", "/v1/models")
    assert answer.status == 500
    assert answer.json()["error"]["code"] == "engine_failed"
    assert b"oops" not in answer.body


async def test_a_body_that_never_ends(port: int) -> None:
    """An upload without a length is cut off at the limit, not kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    chunk = b"%x\r\n%b\r\n" % (1 << 20, b" " * (1 << 20))
    answer = asyncio.create_task(reader.read())
    sent = 0
    while not answer.done() and sent <= MAX_BODY_BYTES * 2:
        try:
            writer.write(chunk)
            await writer.drain()
        except ConnectionError:
            break
        sent += 1 << 20
    try:
        raw = await answer
    except ConnectionResetError:
        raw = b""  # the answer was overtaken by the reset that our own upload provoked
    writer.close()
    assert MAX_BODY_BYTES <= sent < MAX_BODY_BYTES * 2
    assert not raw or parse_answer(raw).status == 413


async def test_a_declared_length_over_the_limit(port: int) -> None:
    """A body that announces more than the limit is refused without a byte of it."""
    headers = [*JSON_BODY, ("Content-Length", str(MAX_BODY_BYTES + 1))]
    answer = await ask(port, "POST", "/v1/chat/completions", headers=headers)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert answer.json()["error"]["code"] == "body_too_large"
