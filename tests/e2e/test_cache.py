"""Agents' conversations over the whole stack: each turn runs what is new, whatever happened."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.support.chat import client
from tests.support.daemon import TIMEOUT_S, Daemon, config

pytestmark = pytest.mark.e2e

MODEL = "tiny-qwen3-next"  # states and keys and values
BLOCK = 16
SYSTEM = {"role": "system", "content": "You are a careful assistant. " * 20}


def text(models: Path) -> str:
    cache = f'[cache]\nblock_tokens = {BLOCK}\ncold_min_free = "1MB"\n'
    return config(models, body=f'[defaults]\nttl = "never"\n{cache}')


@pytest.fixture
def daemon(home: Path, tiny_models: Path) -> Iterator[Daemon]:
    with Daemon(home, text(tiny_models)) as running:
        running.until(lambda s: any(m["id"] == MODEL for m in s["models"]), "discovered")
        yield running


class Chat:
    """A conversation, and how much of every turn's prompt was cached."""

    def __init__(self, openai: AsyncOpenAI) -> None:
        self.openai = openai
        self.messages: list[dict[str, Any]] = [SYSTEM]
        self.prompts: list[int] = []
        self.cached: list[int] = []

    async def turn(self, number: int, *, tokens: int = 24) -> str:
        self.messages.append({"role": "user", "content": f"Number {number}: go on, please."})
        answer = await self.openai.chat.completions.create(
            model=MODEL,
            messages=self.messages,  # type: ignore[arg-type]
            max_tokens=tokens,
            temperature=0,
            extra_body={"ignore_eos": True},
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        self.prompts.append(answer.usage.prompt_tokens)
        self.cached.append(answer.usage.prompt_tokens_details.cached_tokens or 0)
        said = answer.choices[0].message.content or ""
        self.messages.append({"role": "assistant", "content": said})
        return said


async def test_every_turn_begins_where_the_last_prompt_ended(daemon: Daemon) -> None:
    """Ten turns; the log says for each where its prompt came from."""
    async with client(daemon.until_listening()) as openai:
        chat = Chat(openai)
        for number in range(10):
            await chat.turn(number)
    assert chat.cached[0] == 0
    for before, cached in zip(chat.prompts, chat.cached[1:], strict=False):
        assert cached >= before - 1
    lines = daemon.log("request")
    assert [line["cached_tokens"] for line in lines] == chat.cached
    for line, prompt in zip(lines, chat.prompts, strict=True):
        parts = line["cache"]
        assert parts["ram"] + parts["ssd"] == line["cached_tokens"]
        assert parts["ram"] + parts["ssd"] + parts["computed"] == prompt
        assert line["cache_hit"] == (line["cached_tokens"] > 0)


async def test_a_killed_worker_costs_the_conversation_a_few_blocks(
    daemon: Daemon, tiny_models: Path
) -> None:
    """The next turn goes on from disk, and says what it would have said."""
    async with client(daemon.until_listening()) as openai:
        chat = Chat(openai)
        for number in range(3):
            await chat.turn(number)
        daemon.until(lambda s: s["memory"]["cold_bytes"] > 0, "written")
        daemon.until(idle_cache(daemon), "all is on disk")
        victim = daemon.model(MODEL)["pid"]
        os.kill(victim, signal.SIGKILL)
        daemon.until(lambda s: all(m["pid"] != victim for m in s["models"]), "noticed")
        said = await chat.turn(3)
        assert chat.prompts[2] - 2 * BLOCK <= chat.cached[3]
        assert daemon.log("request")[-1]["cache"]["ssd"] == chat.cached[3]
        cold = Chat(openai)
        cold.messages = chat.messages[:-2]
        assert daemon.ctl("cache", "clear", "--yes").returncode == 0
        assert await cold.turn(3) == said
        assert cold.cached == [0]


def idle_cache(daemon: Daemon) -> Any:
    def is_written(_status: object) -> bool:
        engines = daemon.control("GET", "/v1/cache")[1]["engines"]
        return any(each["cold_entries"] and not each["queued_bytes"] for each in engines)

    return is_written


async def test_a_client_that_gave_up_finds_its_prompt_begun(daemon: Daemon) -> None:
    """It hangs up in the middle of a long prompt and sends it again: it does not start anew."""
    long = [{"role": "user", "content": " ".join(str(number) for number in range(4000))}]
    async with client(daemon.until_listening()) as openai:
        await Chat(openai).turn(0)  # the model is loaded
        first = asyncio.create_task(ask(openai, long))
        await asyncio.to_thread(
            daemon.until, lambda s: any(m["running"] for m in s["models"]), "it runs"
        )
        await asyncio.to_thread(until_computed, daemon, 2000)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        answer = await ask(openai, long)
    assert answer.usage.prompt_tokens_details.cached_tokens >= 1024


def until_computed(daemon: Daemon, tokens: int) -> None:
    """Until the one running prompt is so far."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        requests = daemon.control("GET", "/v1/requests")[1]["requests"]
        if any(each["computed_tokens"] >= tokens for each in requests):
            return
        time.sleep(0.02)  # progress is no event: nothing is sent that could be waited for
    raise AssertionError(f"never computed: {requests}")


async def ask(openai: AsyncOpenAI, messages: list[dict[str, Any]]) -> Any:
    return await openai.chat.completions.create(
        model=MODEL,
        messages=messages,  # type: ignore[arg-type]
        max_tokens=2,
        temperature=0,
    )
