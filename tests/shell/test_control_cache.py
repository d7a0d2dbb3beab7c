"""The prefix cache on the control socket, over a real Unix socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from omlxd.control.cache_wire import VerifyProgress
from omlxd.errors import ModelUnavailable
from tests.fakes.fake_cache import FakeCache
from tests.fakes.fake_control import FakeControl
from tests.support.control_socket import ask, serving, short_home


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def cache(control: FakeControl) -> FakeCache:
    return control.cache


@pytest.fixture
async def sock(control: FakeControl) -> AsyncIterator[Path]:
    with short_home() as home:
        path = home / "run" / "omlxd.sock"
        async with serving(control, path):
            yield path


async def test_the_cache_is_one_object(sock: Path) -> None:
    """GET /v1/cache has both tiers and every loaded engine's part."""
    answer = await ask(sock, "GET", "/v1/cache")
    found = answer.json()
    assert (answer.status, found["api_version"], found["reason"]) == (200, 1, "Ready")
    assert found["engines"][0]["tokens"] == {"ram": 750, "ssd": 200, "computed": 50}


async def test_what_is_on_disk_is_listed(sock: Path) -> None:
    """GET /v1/cache/entries has one row for each namespace."""
    answer = await ask(sock, "GET", "/v1/cache/entries")
    assert [one["model"] for one in answer.json()["namespaces"]] == ["Beta"]


async def test_verifying_tells_how_far_it_is(sock: Path, cache: FakeCache) -> None:
    """POST /v1/cache/verify answers one JSON object a line, the last one is the result."""
    half = VerifyProgress(total=2, checked=1, bytes=9, bad={"checksum": 1}, removed=1)
    cache.progress.insert(0, half)
    answer = await ask(sock, "POST", "/v1/cache/verify", b'{"model": "Beta"}')
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [line["done"] for line in lines] == [False, True]
    assert lines[0]["bad"] == {"checksum": 1}
    assert cache.asked == ["verify Beta"]


async def test_commands_reach_the_cache(sock: Path, cache: FakeCache) -> None:
    """gc and clear answer what they did; an empty body of clear means everything."""
    gc = await ask(sock, "POST", "/v1/cache/gc")
    clear = await ask(sock, "POST", "/v1/cache/clear", b"{}")
    assert (gc.json()["temporary_files"], clear.json()["cold_entries"]) == (2, 6)
    assert cache.asked == ["gc", "clear"]


@pytest.mark.parametrize("path", ["/v1/cache/verify", "/v1/cache/clear"])
async def test_refusals_come_before_anything_else(sock: Path, cache: FakeCache, path: str) -> None:
    """An unknown model is a 404, no cold tier a 503, with nothing streamed."""
    unknown = await ask(sock, "POST", path, b'{"model": "nobody"}')
    assert (unknown.status, unknown.json()["code"]) == (404, "model_not_found")
    cache.refusal = ModelUnavailable("there is no cold tier now (NotOurs)")
    refused = await ask(sock, "POST", path, b"{}")
    assert (refused.status, "NotOurs" in refused.json()["message"]) == (503, True)


async def test_a_body_that_is_not_understood_is_refused(sock: Path, cache: FakeCache) -> None:
    """Nothing is cleared for a body of another shape."""
    answer = await ask(sock, "POST", "/v1/cache/clear", b'{"model": 3}')
    assert (answer.status, cache.asked) == (400, [])


async def test_why_is_asked_by_request(sock: Path) -> None:
    """GET /v1/requests/{id}/why explains one request, or says that it is not known."""
    known = await ask(sock, "GET", "/v1/requests/req_1/why")
    unknown = await ask(sock, "GET", "/v1/requests/req_2/why")
    assert (known.status, known.json()["prompt_tokens"]) == (200, 1000)
    assert (unknown.status, unknown.json()["code"]) == (404, "not_found")
