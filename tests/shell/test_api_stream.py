"""Answers as they go out: when the head goes, what keeps them alive, and every way they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from omlxd.api.app import create_app
from omlxd.api.ports import ServerSettings
from omlxd.errors import ContextOverflow, RequestInvalid
from omlxd.ipc.messages import Accepted, Delta, Event, Finished, GenerateRequest
from tests.fakes.fake_gateway import FakeGateway, completed
from tests.fakes.manual_clock import ManualClock
from tests.support.asgi import Exchange
from tests.support.serving import JSON_BODY, post, serving

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
BODY = {"model": "small", "messages": HI}
STREAM = {**BODY, "stream": True}
KEEP_ALIVE = b": keep-alive\n\n"


class Stage:
    """A script that goes on one event at a time, when the test gives it."""

    def __init__(self) -> None:
        self.cues: asyncio.Queue[Event | Exception] = asyncio.Queue()
        self.request_id = ""

    async def script(self, request: GenerateRequest) -> AsyncIterator[Event]:
        self.request_id = request.request_id
        while True:
            cue = await self.cues.get()
            if isinstance(cue, Exception):
                raise cue
            yield cue

    def accept(self) -> None:
        self.cues.put_nowait(Accepted("", 7))

    def say(self, text: str) -> None:
        self.cues.put_nowait(Delta("", 0, text))

    def end(self) -> None:
        self.cues.put_nowait(Finished("", 0, "stop"))
        request = GenerateRequest(request_id="", model="")
        self.cues.put_nowait(completed(request, output_tokens=1))

    def fail(self, error: Exception) -> None:
        self.cues.put_nowait(error)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def gateway(stage: Stage) -> FakeGateway:
    return FakeGateway(stage.script)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def start(gateway: FakeGateway, clock: ManualClock) -> Any:
    def start(body: dict[str, Any], path: str = CHAT) -> Exchange:
        return Exchange(create_app(gateway, clock=clock), path, body)

    return start


async def test_the_head_goes_out_when_accepted(stage: Stage, start: Any) -> None:
    """Acceptance is the moment of the 200, before any token."""
    exchange = start(STREAM)
    stage.accept()
    await exchange.until(lambda: exchange.status == 200)
    assert exchange.body == b""
    headers = dict(exchange.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-cache"
    stage.end()
    await exchange.task


async def test_a_refusal_within_the_hold_is_a_status(
    stage: Stage, start: Any, clock: ManualClock
) -> None:
    """As long as the head is held, a refusal is a plain error response."""
    exchange = start(STREAM)
    await clock.advance(5)
    await clock.asleep()
    assert exchange.sent == []
    stage.fail(ContextOverflow("too long", prompt_tokens=9, max_context=8))
    await exchange.task
    assert exchange.status == 400
    assert json.loads(exchange.body)["error"]["code"] == "context_length_exceeded"


async def test_the_head_is_held_ten_seconds(
    stage: Stage, start: Any, clock: ManualClock, gateway: FakeGateway
) -> None:
    """Then the 200 goes out with a keep-alive, and a later refusal is an error event."""
    exchange = start(STREAM)
    await clock.advance(5)
    await clock.asleep()
    assert exchange.sent == []
    await clock.advance(5)
    await exchange.until(lambda: exchange.body == KEEP_ALIVE)
    assert exchange.status == 200
    stage.fail(RequestInvalid("No.", param="stop"))
    await exchange.task
    comment, error, done, end = exchange.body.split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["param"] == "stop"
    assert (comment, done, end) == (b": keep-alive", b"data: [DONE]", b"")
    assert not exchange.sent[-1].get("more_body")
    assert [record.status for record in gateway.records] == [400]


async def test_messages_have_pings(stage: Stage, start: Any, clock: ManualClock) -> None:
    """Anthropic's protocol has an event for it, before the message begins and while it waits."""
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    exchange = start(STREAM, "/v1/messages")
    await clock.advance(10)
    await exchange.until(lambda: exchange.body == ping)
    stage.accept()
    await exchange.until(lambda: b"message_start" in exchange.body)
    await clock.advance(5)
    await exchange.until(lambda: exchange.body.endswith(ping))
    stage.end()
    await exchange.task
    assert exchange.body.count(ping) == 2
    assert exchange.body.endswith(b'data: {"type":"message_stop"}\n\n')


async def test_keep_alives_go_by_the_clock(stage: Stage, start: Any, clock: ManualClock) -> None:
    """Every five silent seconds have one, before the first token and between tokens."""
    exchange = start(STREAM)
    stage.accept()
    await exchange.until(lambda: exchange.status == 200)
    for number in (1, 2):
        await clock.advance(5)
        await exchange.until(lambda: exchange.body == KEEP_ALIVE * number)  # noqa: B023
    await clock.advance(3)
    stage.say("x")
    await exchange.until(lambda: b'"x"' in exchange.body)
    await clock.advance(2)
    await clock.asleep()
    assert exchange.body.count(KEEP_ALIVE) == 2  # only two seconds since the token
    await clock.advance(3)
    await exchange.until(lambda: exchange.body.count(KEEP_ALIVE) == 3)
    stage.end()
    await exchange.task
    assert exchange.body.endswith(b"data: [DONE]\n\n")


async def test_a_whole_answer_is_one_write(stage: Stage, start: Any) -> None:
    """Without stream nothing goes out before the end, and then all of it with its length."""
    exchange = start(BODY)
    stage.accept()
    stage.say("x")
    stage.end()
    await exchange.task
    assert [message["type"] for message in exchange.sent] == [
        "http.response.start",
        "http.response.body",
    ]
    assert dict(exchange.sent[0]["headers"])[b"content-length"] == b"%d" % len(exchange.body)


async def test_a_slow_reader_holds_back_its_own_stream(
    stage: Stage, start: Any, clock: ManualClock
) -> None:
    """While a write waits, no further event is taken, and nothing piles up."""
    exchange = start(STREAM)
    stage.accept()
    await exchange.until(lambda: exchange.status == 200)
    exchange.reading.clear()
    for _ in range(100):
        stage.say("x")
    await exchange.until(lambda: len(exchange.sent) == 2)
    await clock.advance(60)
    for _ in range(20):
        await asyncio.sleep(0)
    assert stage.cues.qsize() == 99
    assert len(exchange.sent) == 2
    exchange.reading.set()
    stage.end()
    await exchange.task
    assert exchange.body.count(b'"content":"x"') == 100


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("phase", ["queued", "prefill", "decode"])
async def test_a_client_that_leaves(phase: str, body: dict[str, Any]) -> None:
    """A closed socket cancels the request at once, whatever it was waiting for."""
    reached = asyncio.Event()

    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        if phase != "queued":
            yield Accepted(request.request_id, 7)
        if phase == "decode":
            yield Delta(request.request_id, 0, "x")
        reached.set()
        await asyncio.Event().wait()

    gateway = FakeGateway(script)
    async with serving(create_app(gateway)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw_post(body))
        await reached.wait()
        writer.close()
        await gateway.recorded.wait()
    assert gateway.cancelled == [gateway.requests[0].request_id]
    (record,) = gateway.records
    assert (record.status, record.finish_reason) == (499, "aborted")
    assert record.output_tokens == (1 if phase == "decode" else 0)


def raw_post(body: dict[str, Any]) -> bytes:
    raw = json.dumps(body).encode()
    lines = [f"POST {CHAT} HTTP/1.1", "Host: localhost", f"Content-Length: {len(raw)}"]
    lines += [f"{name}: {value}" for name, value in JSON_BODY]
    return "\r\n".join([*lines, "", ""]).encode() + raw


async def test_a_client_that_reads_nothing_and_leaves() -> None:
    """A write that waits for a reader ends with the connection, and so does the request."""
    started = asyncio.Event()
    produced = 0

    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        nonlocal produced
        yield Accepted(request.request_id, 7)
        for _ in range(1000):
            produced += 1
            started.set()
            yield Delta(request.request_id, 0, "x" * 2**20)
            await asyncio.sleep(0)  # events come from elsewhere: the loop turns between them

    gateway = FakeGateway(script)
    async with serving(create_app(gateway)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw_post(STREAM))
        await started.wait()
        writer.close()
        await gateway.recorded.wait()
    assert gateway.cancelled
    assert produced < 1000
    assert gateway.records[0].status == 499


async def test_a_client_that_leaves_during_its_upload(gateway: FakeGateway) -> None:
    """Half a body and a closed socket are recorded, and nothing runs."""
    async with serving(create_app(gateway)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw_post(BODY)[:-5])
        await writer.drain()
        writer.close()
        await gateway.recorded.wait()
    assert gateway.requests == []
    assert [record.status for record in gateway.records] == [499]


async def test_a_server_that_stops(stage: Stage, start: Any, gateway: FakeGateway) -> None:
    """A cancelled handler cancels its request and leaves one record that says so."""
    exchange = start(STREAM)
    stage.accept()
    await exchange.until(lambda: exchange.status == 200)
    exchange.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange.task
    assert gateway.cancelled == [stage.request_id]
    assert [(record.status, record.finish_reason) for record in gateway.records] == [
        (503, "aborted")
    ]


@pytest.mark.parametrize("accepted", [False, True])
async def test_a_defect_of_ours(
    stage: Stage, start: Any, gateway: FakeGateway, accepted: bool
) -> None:
    """An unforeseen exception ends the answer properly and still reaches the log."""
    exchange = start(STREAM)
    if accepted:
        stage.accept()
        await exchange.until(lambda: exchange.status == 200)
    stage.fail(ZeroDivisionError("oops"))
    with pytest.raises(ExceptionGroup) as failure:
        await exchange.task
    assert failure.group_contains(ZeroDivisionError)
    assert exchange.status == (200 if accepted else 500)
    assert b"oops" not in exchange.body
    assert b"engine_failed" in exchange.body
    assert exchange.body.endswith(b"data: [DONE]\n\n") is accepted
    assert [record.status for record in gateway.records] == [500]


async def test_events_that_end_early(start: Any, gateway: FakeGateway) -> None:
    """A stream never just stops: without a result there is an error."""

    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        yield Accepted(request.request_id, 7)

    gateway.script = script
    exchange = start(STREAM)
    await exchange.task
    assert b'"code":"engine_failed"' in exchange.body
    assert exchange.body.endswith(b"data: [DONE]\n\n")


async def test_one_refused_prompt_refuses_all(start: Any, gateway: FakeGateway) -> None:
    """No text goes out before every prompt is accepted; one refusal cancels the others."""

    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        if request.prompt == "bad":
            raise RequestInvalid("No.", param="prompt")
        yield Accepted(request.request_id, 7)
        yield Delta(request.request_id, 0, "x")

    gateway.script = script
    exchange = start(
        {"model": "small", "prompt": ["a", "b", "bad"], "stream": True}, "/v1/completions"
    )
    await exchange.task
    assert exchange.status == 400
    assert sorted(gateway.cancelled) == sorted(request.request_id for request in gateway.requests)
    assert [record.status for record in gateway.records] == [400]


async def test_a_client_that_leaves_several_prompts(start: Any, gateway: FakeGateway) -> None:
    """Every request of the job is cancelled."""
    running = 0
    all_running = asyncio.Event()

    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        nonlocal running
        yield Accepted(request.request_id, 7)
        running += 1
        if running == 3:
            all_running.set()
        await asyncio.Event().wait()

    gateway.script = script
    exchange = start({"model": "small", "prompt": ["a", "b", "c"]}, "/v1/completions")
    await all_running.wait()
    exchange.gone.set()
    await exchange.task
    assert len(gateway.cancelled) == 3
    assert [record.status for record in gateway.records] == [499]


async def test_settings_and_counts_reach_their_places(
    stage: Stage, start: Any, gateway: FakeGateway
) -> None:
    """The request timeout goes to the gateway; omitted pictures go into the record."""
    gateway.settings = ServerSettings(request_timeout_s=30.0)
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    stage.accept()
    stage.end()
    await start({**BODY, "messages": [{"role": "user", "content": [picture]}]}).task
    assert gateway.timeouts == [30.0]
    (record,) = gateway.records
    assert (record.media_omitted, record.stream, record.model) == (1, False, "org/tiny")
    assert (record.queue_ms, record.cached_tokens) == (2.5, 4)


async def test_transcript_over_a_socket() -> None:
    """The bytes a client reads, from the first frame to the last."""
    gateway = FakeGateway()
    body = {"model": "small", "prompt": "x", "stream": True, "stream_options": {"x": 1}}
    async with serving(create_app(gateway)) as port:
        answer = await post(port, "/v1/completions", body)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    head, created = answer.body.split(b'"created":')[:2]
    fixed = head + b'"created":' + created.partition(b",")[0] + b","
    texts = [b'"Hel"', b'"lo, "', '"wörld"'.encode(), b'"!"', b'""']
    frames = [
        fixed
        + b'"model":"org/tiny","choices":[{"index":0,"text":'
        + text
        + b',"logprobs":null,"finish_reason":'
        + (b'"stop"' if text == b'""' else b"null")
        + b"}]}\n\n"
        for text in texts
    ]
    assert answer.body == b"".join([*frames, b"data: [DONE]\n\n"])
