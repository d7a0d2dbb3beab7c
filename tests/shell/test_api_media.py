"""Pictures of requests, over the whole HTTP side: what reaches the model, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from omlxd.api import media
from omlxd.api.app import create_app
from omlxd.api.media import MediaReader
from omlxd.api.ports import ServedModel, ServerSettings
from omlxd.api.web_fetch import Fetcher
from omlxd.api.wire.picture_source import MAX_PICTURE_BYTES
from tests.fakes.fake_gateway import LLM, FakeGateway
from tests.support.asgi import Exchange
from tests.support.pictures import data_uri, png
from tests.support.serving import Answer, post, serving
from tests.support.web import Web, here_too, says, web

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
EYES = ServedModel(id="eyes", kind="vlm", max_context=4096)
RED, BLUE = png(8, 8, red=200), png(8, 8)


@pytest.fixture
async def server() -> AsyncIterator[Web]:
    async with web() as it:
        yield it


@pytest.fixture
def gateway(tmp_path: Path) -> FakeGateway:
    settings = ServerSettings(media_roots=(tmp_path,), allow_remote_media=True)
    return FakeGateway(models=(LLM, EYES), settings=settings)


@pytest.fixture
async def port(gateway: FakeGateway) -> AsyncIterator[int]:
    reader = MediaReader(Fetcher(limit=MAX_PICTURE_BYTES, is_allowed=here_too))
    async with serving(create_app(gateway, media=reader)) as port:
        yield port


def body_of(path: str, *urls: str, model: str = "eyes") -> dict[str, Any]:
    """One message with these pictures, in the language of the route."""
    if path == RESPONSES:
        content: list[Any] = [{"type": "input_image", "image_url": url} for url in urls]
        return {"model": model, "input": [{"role": "user", "content": content}]}
    if path == MESSAGES:
        content = [{"type": "image", "source": {"type": "url", "url": url}} for url in urls]
    else:
        content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 9}


async def ask(port: int, *urls: str, path: str = CHAT, model: str = "eyes") -> Answer:
    return await post(port, path, body_of(path, *urls, model=model))


async def refused(port: int, *urls: str, path: str = CHAT) -> tuple[str, str | None]:
    """The message and the parameter of a 400."""
    answer = await ask(port, *urls, path=path)
    assert answer.status == 400, answer.body
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error["message"], error.get("param")


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, f"{MESSAGES}/count_tokens"])
async def test_pictures_of_every_kind_reach_the_model(
    port: int, gateway: FakeGateway, server: Web, tmp_path: Path, path: str
) -> None:
    """In their order, as they came, in every dialect."""
    (tmp_path / "b c.png").write_bytes(BLUE)
    server.answers["/x"] = says(RED)
    urls = (data_uri(BLUE), server.url(), f"{tmp_path.as_uri()}/b%20c.png", data_uri(RED))
    asked = MESSAGES if path.startswith(MESSAGES) else path
    answer = await post(port, path, body_of(asked, *urls))
    assert answer.status == 200, answer.body
    (request,) = gateway.requests
    assert request.images == [BLUE, RED, BLUE, RED]
    assert request.messages is not None
    parts = request.messages[0]["content"]
    assert parts == [{"type": "image", "image": number} for number in range(4)]


async def test_what_occurs_twice_is_fetched_once(
    port: int, gateway: FakeGateway, server: Web
) -> None:
    """A conversation names the same picture again and again."""
    server.answers |= {"/x": says(RED), "/y": says(BLUE)}
    urls = [server.url("/x"), server.url("/y"), server.url("/x")]
    assert (await ask(port, *urls)).status == 200
    assert gateway.requests[0].images == [RED, BLUE, RED]
    assert sorted(server.paths) == ["/x", "/y"]


async def test_a_text_model_fetches_nothing(port: int, gateway: FakeGateway, server: Web) -> None:
    """Its pictures are left out, and counted, whatever they are."""
    answer = await ask(port, server.url(), "file:///etc/passwd", "nonsense", model="small")
    assert answer.status == 200
    assert server.requests == []
    assert gateway.requests[0].images == []
    assert gateway.records[0].media_omitted == 3


@pytest.mark.parametrize(
    ("path", "param"),
    [
        (CHAT, "messages[0].content[1]"),
        (RESPONSES, "input[0].content[1]"),
        (MESSAGES, "messages[0].content[1]"),
    ],
)
async def test_a_refusal_names_the_picture(
    port: int, gateway: FakeGateway, server: Web, path: str, param: str
) -> None:
    """In the envelope of the family, with its place and the reason; nothing reaches the model."""
    server.answers["/gone?key=1"] = says(b"", status="404 Not Found")
    message, named = await refused(port, data_uri(RED), server.url("/gone?key=1"), path=path)
    at = f"{param}: the picture could not be fetched: 127.0.0.1:{server.port} answered with status"
    assert message == f"{at} 404."
    assert named == (None if path == MESSAGES else param)
    assert gateway.requests == []
    assert [(record.status, record.error) for record in gateway.records] == [(400, message)]


async def test_only_what_the_settings_allow(
    port: int, gateway: FakeGateway, server: Web, tmp_path: Path
) -> None:
    """Neither the web nor files, unless they are set; each refusal names the setting."""
    (tmp_path / "b.png").write_bytes(BLUE)
    server.answers["/x"] = says(RED)
    local = f"{tmp_path.as_uri()}/b.png"
    gateway.settings = ServerSettings(allow_remote_media=True)
    message, _ = await refused(port, server.url(), local)
    assert "server.media_roots" in message
    assert server.requests == []  # for a request that is refused anyway
    gateway.settings = ServerSettings(media_roots=(tmp_path,))
    message, param = await refused(port, local, server.url())
    assert "server.allow_remote_media" in message
    assert param == "messages[0].content[1]"
    gateway.settings = ServerSettings()
    assert (await ask(port, data_uri(RED))).status == 200


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("file:///etc/passwd", "the file '/etc/passwd' is not below a folder of server.media"),
        (data_uri(b"<svg/>"), "what was sent is no picture that is read here; send PNG, JPEG"),
        (data_uri(b"%PDF-1.4"), "what was sent is a PDF document, and those are not read"),
        (data_uri(RED[:18]), "what was sent is cut off before its size"),
        (data_uri(png(10_000, 5001)), "the PNG has 10000 x 5001 pixels; the most is 50 million"),
        ("data:image/png;base64,", "the picture has no bytes"),
        ("http://10.0.0.1/x", "10.0.0.1 leads to an address that is not public"),
        ("/etc/passwd", "is no URL that is read here"),
    ],
)
async def test_pictures_that_are_refused(port: int, url: str, problem: str) -> None:
    """By their first bytes, before anything is decoded, or by where they are."""
    message, param = await refused(port, url)
    assert problem in message
    assert param == "messages[0].content[0]"


async def test_the_largest_picture_is_taken(port: int) -> None:
    """As many pixels as are allowed."""
    assert (await ask(port, data_uri(png(10_000, 5000)))).status == 200


async def test_the_first_bad_picture_is_the_one_that_is_named(port: int, server: Web) -> None:
    """However long it takes to find out: the answer does not depend on which was faster."""
    server.answers["/slow"] = [b"", *[b"H"], *[b"" for _ in range(50)], b"nonsense"]
    message, param = await refused(port, data_uri(RED), server.url("/slow"), data_uri(b"bad"))
    assert param == "messages[0].content[1]", message


@pytest.mark.parametrize("kind", ["data", "repeated"])
async def test_all_pictures_together_have_a_limit(
    port: int, gateway: FakeGateway, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one of them occurs several times: each is sent to the model."""
    size = len(RED)
    monkeypatch.setattr(media, "MAX_TOTAL_BYTES", 3 * size)
    pictures = [png(8, 8, red=1) if kind == "repeated" else png(8, 8, red=n) for n in range(4)]
    assert (await ask(port, *map(data_uri, pictures[:3]))).status == 200
    message, param = await refused(port, *map(data_uri, pictures))
    assert "the pictures up to this one have more than 0 MiB together" in message
    assert param == "messages[0].content[3]"


async def test_what_is_too_much_already_is_not_fetched_on(
    port: int, server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures are counted as they come, and those that wait their turn are left."""
    monkeypatch.setattr(media, "MAX_TOTAL_BYTES", len(RED))
    paths = [f"/{number}" for number in range(30)]
    server.answers |= {path: says(RED) for path in paths}
    message, param = await refused(port, *map(server.url, paths))
    assert "together" in message
    assert param == "messages[0].content[29]"
    assert len(server.paths) < len(paths)


async def test_all_pictures_together_have_a_time(gateway: FakeGateway, server: Web) -> None:
    """However many there are, the client is answered when it is over."""
    paths = [f"/{number}" for number in range(9)]
    server.answers |= {path: [] for path in paths}
    server.holds |= {*paths}
    reader = MediaReader(Fetcher(limit=100, is_allowed=here_too), timeout_s=0.2)
    async with serving(create_app(gateway, media=reader)) as port:
        message, param = await refused(port, *map(server.url, paths))
    assert "took more than 0.2 s to get" in message
    assert param == "messages[0].content[8]"


async def test_a_client_that_leaves_ends_the_fetch(gateway: FakeGateway, server: Web) -> None:
    """The connection to the picture's server is closed, and the record says who left."""
    server.answers["/x"] = []
    server.holds.add("/x")
    reader = MediaReader(Fetcher(limit=100, is_allowed=here_too))
    exchange = Exchange(create_app(gateway, media=reader), CHAT, body_of(CHAT, server.url()))
    await server.asked.wait()
    exchange.gone.set()
    await exchange.task
    await server.left.wait()
    assert exchange.sent == []
    assert [record.status for record in gateway.records] == [499]
    assert gateway.requests == []


async def test_a_shut_down_ends_the_fetch(gateway: FakeGateway, server: Web) -> None:
    """Nothing is left running."""
    server.answers["/x"] = []
    server.holds.add("/x")
    reader = MediaReader(Fetcher(limit=100, is_allowed=here_too))
    exchange = Exchange(create_app(gateway, media=reader), CHAT, body_of(CHAT, server.url()))
    await server.asked.wait()
    exchange.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange.task
    await server.left.wait()
    assert [record.status for record in gateway.records] == [503]


async def test_after_a_fetch_the_stream_goes_on_as_ever(
    gateway: FakeGateway, server: Web, port: int
) -> None:
    """Watching the client during the fetch takes nothing from what comes after it."""
    server.answers["/x"] = says(RED)
    answer = await post(port, CHAT, {**body_of(CHAT, server.url()), "stream": True})
    assert answer.status == 200
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert gateway.cancelled == []
