"""The official clients against the HTTP API over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anthropic
import openai
import pytest

from omlxd.api.app import create_app
from omlxd.api.ports import ServerSettings
from omlxd.errors import (
    ContextOverflow,
    EngineFailed,
    MemoryExceeded,
    ModelUnavailable,
    OmlxError,
    QueueFull,
)
from omlxd.ipc.messages import Accepted, Delta, Event, GenerateRequest
from tests.fakes.fake_gateway import FakeGateway, Script
from tests.support.serving import serving

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
async def client(gateway: FakeGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        serving(create_app(gateway)) as port,
        openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="dummy", max_retries=0
        ) as sdk,
    ):
        yield sdk


async def test_chat(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """An alias is answered by the model it stands for, which the answer names."""
    answer = await client.chat.completions.create(model="small", messages=HI, seed=5, stop=["x"])
    assert answer.model == "org/tiny"
    assert answer.choices[0].message.content == "Hello, wörld!"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 4)
    assert answer.usage.total_tokens == 11
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    (request,) = gateway.requests
    assert (request.model, request.messages, request.stop) == ("org/tiny", HI, ["x"])
    assert request.sampling.seed == 5
    assert answer.id == f"chatcmpl-{request.request_id.removeprefix('req_')}"


async def test_chat_stream(client: openai.AsyncOpenAI) -> None:
    """A stream has a role first, the same text, one finish, and no usage unasked."""
    stream = await client.chat.completions.create(model="small", messages=HI, stream=True)
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "Hello, wörld!"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 5 + ["stop"]
    assert all(chunk.usage is None for chunk in chunks)
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


async def test_chat_stream_with_usage_and_choices(client: openai.AsyncOpenAI) -> None:
    """With two choices each has its text, and the one usage chunk comes last."""
    stream = await client.chat.completions.create(
        model="small", messages=HI, stream=True, n=2, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    for index in (0, 1):
        pieces = [
            choice.delta.content or ""
            for chunk in chunks
            for choice in chunk.choices
            if choice.index == index
        ]
        assert "".join(pieces) == "Hello, wörld!"


async def test_chat_logprobs(client: openai.AsyncOpenAI) -> None:
    """Log-probabilities are real values aligned with the text."""
    answer = await client.chat.completions.create(
        model="small", messages=HI, n=2, logprobs=True, top_logprobs=2
    )
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
        assert [len(entry.top_logprobs) for entry in choice.logprobs.content] == [2, 2, 2, 2]


async def test_completions(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """Several prompts with two choices each are answered in order, with the usage of all."""
    answer = await client.completions.create(
        model="small", prompt=["a", "b"], n=2, logprobs=1, max_tokens=9
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert {choice.text for choice in answer.choices} == {"Hello, wörld!"}
    assert answer.choices[3].logprobs is not None
    assert answer.choices[3].logprobs.text_offset == [0, 3, 7, 12]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (14, 16)
    assert sorted(str(request.prompt) for request in gateway.requests) == ["a", "b"]


async def test_completions_stream(client: openai.AsyncOpenAI) -> None:
    """A streamed text completion gives the same text for every prompt."""
    stream = await client.completions.create(model="small", prompt=[[1, 2], [3]], stream=True)
    texts = ["", ""]
    async for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["Hello, wörld!"] * 2


async def test_models(client: openai.AsyncOpenAI) -> None:
    """The list holds ids and aliases; an id with a slash can be retrieved."""
    assert [model.id async for model in client.models.list()] == [
        "org/tiny",
        "small",
        "embedder",
        "ranker",
    ]
    assert (await client.models.retrieve("org/tiny")).created == 1_700_000_000
    assert (await client.models.retrieve("small")).id == "small"
    with pytest.raises(openai.NotFoundError, match="org/tiny"):
        await client.models.retrieve("nope")


async def test_models_for_anthropic_clients(gateway: FakeGateway) -> None:
    """The same list satisfies the other family's client, page fields and dates included."""
    async with (
        serving(create_app(gateway)) as port,
        anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="dummy") as sdk,
    ):
        page = await sdk.models.list(limit=1000)
        assert not page.has_next_page()
        assert [(model.id, model.type) for model in page.data][:2] == [
            ("org/tiny", "model"),
            ("small", "model"),
        ]
        assert page.data[0].display_name == "org/tiny"
        assert page.data[0].max_input_tokens == 3072
        assert page.data[0].created_at.year == 2023


def failing(error: OmlxError, *first: str) -> Script:
    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        for word in first:
            yield Accepted(request.request_id, 7)
            yield Delta(request.request_id, 0, word)
        raise error

    return script


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ContextOverflow("x", prompt_tokens=9, max_context=8), openai.BadRequestError),
        (QueueFull("Too many requests wait."), openai.InternalServerError),
        (ModelUnavailable("It keeps crashing."), openai.InternalServerError),
        (MemoryExceeded("It can never fit."), openai.InternalServerError),
        (EngineFailed("It broke."), openai.InternalServerError),
    ],
)
async def test_refusals_before_the_stream(
    gateway: FakeGateway,
    client: openai.AsyncOpenAI,
    error: OmlxError,
    raised: type[openai.APIStatusError],
    stream: bool,
) -> None:
    """A refusal before the first token is a status and a code, streamed or not."""
    gateway.script = failing(error)
    with pytest.raises(raised) as refusal:
        await client.chat.completions.create(model="small", messages=HI, stream=stream)
    assert refusal.value.status_code == error.status
    assert refusal.value.code == error.code
    has_retry = "retry-after" in refusal.value.response.headers
    assert has_retry == (error.status == 503)
    assert [record.status for record in gateway.records] == [error.status]


@pytest.mark.parametrize(
    ("body", "raised", "code", "param"),
    [
        ({"model": "nope"}, openai.NotFoundError, "model_not_found", "model"),
        ({"model": ""}, openai.BadRequestError, "invalid_request", "model"),
        ({"model": "embedder"}, openai.BadRequestError, "invalid_request", "model"),
        ({"temperature": 3}, openai.BadRequestError, "invalid_request", "temperature"),
        ({"n": 0, "stream": True}, openai.BadRequestError, "invalid_request", "n"),
        ({"tools": {}}, openai.BadRequestError, "invalid_request", "tools"),
    ],
)
async def test_bad_requests(
    gateway: FakeGateway,
    client: openai.AsyncOpenAI,
    body: dict[str, object],
    raised: type[openai.APIStatusError],
    code: str,
    param: str,
) -> None:
    """What cannot be served is refused before anything runs, and recorded once."""
    with pytest.raises(raised) as refusal:
        await client.post(
            "/chat/completions",
            body={"model": "small", "messages": HI, **body},
            cast_to=openai.types.chat.ChatCompletion,
        )
    assert (refusal.value.code, refusal.value.param) == (code, param)
    assert gateway.requests == []
    assert [record.finish_reason for record in gateway.records] == ["error"]


async def test_a_failure_inside_the_stream(
    gateway: FakeGateway, client: openai.AsyncOpenAI
) -> None:
    """After the first token a failure reaches the client's code as an error, not as an end."""
    gateway.script = failing(EngineFailed("It broke."), "Hel")
    stream = await client.chat.completions.create(model="small", messages=HI, stream=True)
    assert (await anext(stream)).choices[0].delta.role == "assistant"
    assert (await anext(stream)).choices[0].delta.content == "Hel"
    with pytest.raises(openai.APIError, match=r"It broke\."):
        await anext(stream)
    assert [(record.status, record.finish_reason) for record in gateway.records] == [(500, "error")]


async def test_keys(gateway: FakeGateway, client: openai.AsyncOpenAI) -> None:
    """A wrong key is an authentication error; a live change of the keys counts at once."""
    gateway.settings = ServerSettings(api_keys=("secret",), require_key_on_loopback=True)
    with pytest.raises(openai.AuthenticationError) as refusal:
        await client.chat.completions.create(model="small", messages=HI)
    assert refusal.value.code == "invalid_api_key"
    assert [(record.api, record.status) for record in gateway.records] == [("chat", 401)]
    gateway.settings = ServerSettings(api_keys=("dummy",), require_key_on_loopback=True)
    await client.chat.completions.create(model="small", messages=HI)
