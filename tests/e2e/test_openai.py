"""The official SDK against the whole stack, with models whose output is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.conftest import MakeScripted
from tests.support.chat import client
from tests.support.daemon import Daemon, config
from tests.support.models import TINY_LLMS

pytestmark = pytest.mark.e2e

SCRIPTS = {
    "A": ["Hello", " there", ", ", "how", " are", " you", "?"],
    "B": ["wave ", 0xF0, 0x9F, 0x8C, 0x8A, " and ", "caf", 0xC3, 0xA9],
}


@pytest.fixture(scope="module")
def daemon(
    shared_home: Path, tiny_models: Path, scripted_model: MakeScripted
) -> Iterator[tuple[Daemon, str]]:
    """A daemon that serves every tiny model and the scripted one; and its base URL."""
    scripted = scripted_model(SCRIPTS)
    text = config([tiny_models, scripted.parent], body='[defaults]\nttl = "never"\n')
    with Daemon(shared_home, text) as running:
        running.until(lambda s: len(s["models"]) == len(TINY_LLMS) + 1, "all models discovered")
        yield running, running.until_listening()


async def ask(openai: AsyncOpenAI, model: str, text: str, *, tokens: int) -> str:
    answer = await openai.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": text}],
        max_tokens=tokens,
        temperature=0,
        extra_body={"ignore_eos": True},
    )
    return answer.choices[0].message.content or ""


@pytest.mark.parametrize("model", TINY_LLMS)
async def test_concurrent_equals_solo(daemon: tuple[Daemon, str], model: str) -> None:
    """Eight greedy requests that join and leave one batch get what each gets alone."""
    prompts = [f"{'word ' * (7 * i)}tell me about {i}" for i in range(8)]
    lengths = [10 + 5 * i for i in range(8)]
    async with client(daemon[1]) as openai:
        together = await asyncio.gather(
            *(ask(openai, model, p, tokens=n) for p, n in zip(prompts, lengths, strict=True))
        )
        alone = [
            await ask(openai, model, p, tokens=n) for p, n in zip(prompts, lengths, strict=True)
        ]
    assert together == alone


async def test_scripted_text(daemon: tuple[Daemon, str]) -> None:
    """Stream and non-stream carry the same text; characters made of several tokens stay whole."""
    async with client(daemon[1]) as openai:
        for key, expected in (
            ("A", "Hello there, how are you?"),
            ("B", "wave \U0001f30a and café"),
        ):
            whole = await openai.chat.completions.create(
                model="scripted", messages=[{"role": "user", "content": key}], temperature=0
            )
            pieces = []
            usage = None
            async for chunk in await openai.chat.completions.create(
                model="scripted",
                messages=[{"role": "user", "content": key}],
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            ):
                pieces += [c.delta.content or "" for c in chunk.choices]
                usage = chunk.usage or usage
            assert whole.choices[0].message.content == "".join(pieces) == expected
            assert whole.choices[0].finish_reason == "stop"
            assert "\ufffd" not in "".join(pieces)
            assert usage is not None
            assert whole.usage is not None
            assert usage.prompt_tokens == whole.usage.prompt_tokens
            assert usage.completion_tokens == len(SCRIPTS[key]) + 1


async def test_stop_string_over_tokens(daemon: tuple[Daemon, str]) -> None:
    """A stop string that spans tokens is found, and nothing of it is sent."""
    async with client(daemon[1]) as openai:
        sent = []
        async for chunk in await openai.chat.completions.create(
            model="scripted",
            messages=[{"role": "user", "content": "A"}],
            temperature=0,
            stream=True,
            stop=["e, ho"],
        ):
            sent += [c.delta.content or "" for c in chunk.choices]
        assert "".join(sent) == "Hello ther"


async def test_logprobs_and_n(daemon: tuple[Daemon, str]) -> None:
    """Log-probabilities line up with the text of every choice; n choices come back."""
    async with client(daemon[1]) as openai:
        answer = await openai.chat.completions.create(
            model="tiny-llama",
            messages=[{"role": "user", "content": "hi"}],
            n=2,
            seed=5,
            max_tokens=6,
            logprobs=True,
            top_logprobs=2,
        )
        again = await openai.chat.completions.create(
            model="tiny-llama",
            messages=[{"role": "user", "content": "hi"}],
            n=2,
            seed=5,
            max_tokens=6,
        )
    assert [c.message.content for c in answer.choices] == [c.message.content for c in again.choices]
    for choice in answer.choices:
        assert choice.logprobs is not None
        tokens = choice.logprobs.content or []
        raw = b"".join(bytes(t.bytes or ()) for t in tokens)
        assert raw.decode(errors="replace") == choice.message.content
        assert all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in tokens)


async def test_refusals(daemon: tuple[Daemon, str]) -> None:
    """What cannot be served is refused with the field's name, before any byte of a stream."""
    async with client(daemon[1]) as openai:
        with pytest.raises(NotFoundError, match="tiny-llama") as unknown:
            await ask(openai, "no-such", "x", tokens=1)
        assert unknown.value.code == "model_not_found"
        with pytest.raises(BadRequestError) as long:
            await ask(openai, "tiny-llama", "word " * 40_000, tokens=1)
        assert long.value.code == "context_length_exceeded"
        assert "32768" in long.value.message
        with pytest.raises(BadRequestError) as hot:
            await openai.chat.completions.create(
                model="tiny-llama",
                messages=[{"role": "user", "content": "x"}],
                temperature=9,
                stream=True,
            )
        assert hot.value.param == "temperature"
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{daemon[1]}/v1/nope", json={})
        assert answer.status_code == 404
        assert answer.json()["error"]["message"]


async def test_models_list(daemon: tuple[Daemon, str]) -> None:
    """The list holds every served model with its served window, and follows a live change."""
    running, url = daemon
    async with client(url) as openai:
        listed = {m.id: m for m in (await openai.models.list()).data}
        assert set(TINY_LLMS) <= set(listed)
        assert listed["tiny-llama"].model_dump()["max_model_len"] == 32768
        done = await asyncio.to_thread(running.ctl, "set", "tiny-llama", "max_context=1000")
        assert done.returncode == 0, done.stderr
        one = await openai.models.retrieve("tiny-llama")
        assert one.model_dump()["max_model_len"] == 1000
        with pytest.raises(BadRequestError, match="1000"):
            await ask(openai, "tiny-llama", "word " * 2000, tokens=1)
        assert (
            await asyncio.to_thread(running.ctl, "unset", "tiny-llama", "max_context")
        ).stderr == ""
