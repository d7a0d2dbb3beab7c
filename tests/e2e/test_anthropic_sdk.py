"""The official Anthropic SDK against the whole stack, with a model whose output is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError

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
async def client(url: str) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as sdk:
        yield sdk


def asked(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "scripted", "messages": messages, "max_tokens": 50, **more}


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content)


def size_of(message: Any) -> int:
    usage = message.usage
    return int(usage.input_tokens + usage.cache_read_input_tokens)


async def test_a_message_streamed_and_whole(client: AsyncAnthropic) -> None:
    """Both say the same, and count the same."""
    for key, expected in (("A", HELLO), ("B", "café")):
        whole = await client.messages.create(**asked(key))
        async with client.messages.stream(**asked(key)) as stream:
            streamed = await stream.get_final_message()
        assert text_of(whole) == text_of(streamed) == expected
        assert whole.stop_reason == streamed.stop_reason == "end_turn"
        assert whole.usage.output_tokens == streamed.usage.output_tokens == len(SCRIPTS[key]) + 1
        assert size_of(whole) == size_of(streamed)


async def test_why_it_stopped(client: AsyncAnthropic) -> None:
    """At a stop sequence, which is named, or at the limit."""
    stopped = await client.messages.create(**asked("A", stop_sequences=["e, ho"]))
    assert text_of(stopped) == "Hello ther"
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "e, ho")
    cut = await client.messages.create(**asked("A", max_tokens=2))
    assert (text_of(cut), cut.stop_reason) == ("Hello there", "max_tokens")


async def test_a_count_is_the_size_of_the_later_prompt(client: AsyncAnthropic) -> None:
    """So many at once as Claude Code asks for, all of them answered."""
    prompts = ["tell me of it " * number + "A" for number in range(28)]
    counts = await asyncio.gather(
        *(
            client.messages.count_tokens(
                model="scripted", messages=[{"role": "user", "content": prompt}], system="Be good."
            )
            for prompt in prompts
        )
    )
    assert len({count.input_tokens for count in counts}) == len(prompts)
    message = await client.messages.create(**asked(prompts[-1], system="Be good."))
    assert size_of(message) == counts[-1].input_tokens


async def test_the_next_turn_finds_the_last_one(client: AsyncAnthropic) -> None:
    """Though content became a list, and marks moved: all but its end is cached."""
    first = await client.messages.create(**asked("words before it " * 40 + "A"))
    block = {"type": "text", "text": "words before it " * 40 + "A", "cache_control": {}}
    messages = [
        {"role": "user", "content": [block]},
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": "A"},
    ]
    second = await client.messages.create(**asked("", messages=messages))
    assert text_of(second) == HELLO
    assert second.usage.cache_read_input_tokens is not None
    assert second.usage.cache_read_input_tokens >= size_of(first)


async def test_a_prefill_is_gone_on_with(client: AsyncAnthropic) -> None:
    """A final assistant message is the beginning of the reply."""
    messages = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "Hello there"}]
    message = await client.messages.create(**asked("", messages=messages))
    assert text_of(message) == ", how are you?"


async def test_what_is_too_long(client: AsyncAnthropic) -> None:
    """Both numbers stand in words that clients look for."""
    with pytest.raises(BadRequestError, match=r"prompt is too long: .*\d+ tokens > \d+ maximum"):
        await client.messages.create(**asked("word " * 200_000))


async def test_claude_codes_own_body(client: AsyncAnthropic) -> None:
    """It is counted as it came; the count and its errors are in Anthropic's shape."""
    body = client_bodies("anthropic")["claude-code__count_tokens_tools"]
    count: Any = await client.post(
        "/v1/messages/count_tokens?beta=true", body={**body, "model": "scripted"}, cast_to=object
    )
    assert count["input_tokens"] > 0
