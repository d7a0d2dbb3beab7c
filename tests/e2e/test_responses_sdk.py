"""The official OpenAI SDK and /v1/responses against the whole stack; the output is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from tests.conftest import MakeScripted
from tests.support.client_bodies import client_bodies
from tests.support.daemon import Daemon, config

pytestmark = pytest.mark.e2e

SCRIPTS = {
    "A": ["Hello", " there", ", ", "how", " are", " you", "?"],
    "B": ["caf", 0xC3, 0xA9],
}
HELLO = "Hello there, how are you?"


@pytest.fixture(scope="module")
def url(shared_home: Path, scripted_model: MakeScripted) -> Iterator[str]:
    """A daemon that serves the scripted model."""
    with Daemon(shared_home, config(scripted_model(SCRIPTS).parent)) as running:
        running.until(lambda s: len(s["models"]) == 1, "the model discovered")
        yield running.until_listening()


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


def asked(said: Any, **more: Any) -> dict[str, Any]:
    return {"model": "scripted", "input": said, "max_output_tokens": 50, **more}


async def test_a_response_streamed_and_whole(client: AsyncOpenAI) -> None:
    """Both say the same, and count the same."""
    for key, expected in (("A", HELLO), ("B", "café")):
        whole = await client.responses.create(**asked(key))
        async with client.responses.stream(**asked(key)) as stream:
            pieces = [e.delta async for e in stream if e.type == "response.output_text.delta"]
            streamed = await stream.get_final_response()
        assert whole.output_text == streamed.output_text == "".join(pieces) == expected
        assert whole.status == streamed.status == "completed"
        assert whole.usage is not None
        assert streamed.usage is not None
        assert whole.usage.output_tokens == streamed.usage.output_tokens == len(SCRIPTS[key]) + 1
        assert whole.usage.input_tokens == streamed.usage.input_tokens


async def test_a_reply_that_was_cut(client: AsyncOpenAI) -> None:
    """It is incomplete, and says at what."""
    cut = await client.responses.create(**asked("A", max_output_tokens=2))
    assert (cut.output_text, cut.status) == ("Hello there", "incomplete")
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


async def test_the_next_turn_finds_the_last_one(client: AsyncOpenAI) -> None:
    """Though the string became items with ids: all but its end is cached."""
    long = "words before it " * 40 + "A"
    first = await client.responses.create(**asked(long, instructions="Be good."))
    parts = [{"type": "input_text", "text": long}]
    items = [
        {"type": "message", "id": "msg_made_up", "role": "user", "content": parts},
        *(item.to_dict() for item in first.output),
        {"role": "user", "content": "A"},
    ]
    second = await client.responses.create(**asked(items, instructions="Be good."))
    assert second.output_text == HELLO
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens
    assert second.usage.input_tokens > second.usage.input_tokens_details.cached_tokens


async def test_a_reply_that_broke_off_is_gone_on_with(client: AsyncOpenAI) -> None:
    """The client sends what it has of it, and gets the rest."""
    items = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "Hello there"}]
    rest = await client.responses.create(**asked(items))
    assert rest.output_text == ", how are you?"


async def test_what_is_too_long(client: AsyncOpenAI) -> None:
    """Refused with the code that clients look for, streamed or not."""
    for stream in (False, True):
        with pytest.raises(BadRequestError, match="maximum context length") as refusal:
            await client.responses.create(**asked("word " * 200_000, stream=stream))
        assert (refusal.value.code, refusal.value.param) == ("context_length_exceeded", "input")


@pytest.mark.parametrize(
    "name",
    [
        "codex__lmstudio_oss_warmup",
        "codex__third_turn_reasoning",
        "copilot__responses_third_turn",
        "openai-sdk__responses_json_schema",
    ],
)
async def test_bodies_of_clients(client: AsyncOpenAI, name: str) -> None:
    """As they came, but not streamed: with tools and calls, or without any text."""
    body = {**client_bodies("responses")[name], "model": "scripted", "stream": False}
    answer: Any = await client.post("/responses", body=body, cast_to=object)
    assert answer["status"] in ("completed", "incomplete")
    assert answer["usage"]["input_tokens"] > 0
