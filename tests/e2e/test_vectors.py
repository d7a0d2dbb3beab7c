"""Embeddings and rerankers through the whole stack, beside a model that chats."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI

from tests.support.daemon import Daemon, config
from tests.support.encoders import LIMIT, make_encoder, make_yes_no
from tests.support.models import make_tiny

pytestmark = pytest.mark.e2e

EMBED, RANK, JUDGE, CHAT = (
    "tiny-bert-embed",
    "tiny-bert-reranker",
    "tiny-Qwen3-Reranker",
    "tiny-llama",
)


@pytest.fixture(scope="module")
def daemon(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Serves one model of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    make_encoder(EMBED, folder, pooling="cls_token")
    make_encoder(RANK, folder)
    make_tiny(CHAT, folder)
    make_yes_no(folder)
    with Daemon(shared_home, config(folder)) as running:
        running.until(lambda s: len(s["models"]) == 4, "the models discovered")
        yield running


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[AsyncOpenAI]:
    url = f"{daemon.until_listening()}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as sdk:
        yield sdk


async def rerank(client: AsyncOpenAI, model: str, **body: Any) -> Any:
    return await client.post("/rerank", body={"model": model, **body}, cast_to=object)


async def test_kinds_are_told(daemon: Daemon) -> None:
    """By config and folder name."""
    kinds = {model["id"]: model["kind"] for model in daemon.status()["models"]}
    assert kinds == {EMBED: "embedding", RANK: "reranker", JUDGE: "reranker", CHAT: "llm"}


async def test_vectors_as_the_sdk_asks_for_them(client: AsyncOpenAI) -> None:
    """Base64 by default, numbers if asked; the same either way, and as for each input alone."""
    texts = ["one", "two words", "three more words"]
    packed = await client.embeddings.create(model=EMBED, input=texts)
    plain = await client.embeddings.create(model=EMBED, input=texts, encoding_format="float")
    alone = [
        (await client.embeddings.create(model=EMBED, input=text)).data[0].embedding
        for text in texts
    ]
    found = np.array([entry.embedding for entry in packed.data])
    assert np.allclose(found, [entry.embedding for entry in plain.data], atol=1e-6)
    assert np.allclose(found, alone, atol=1e-5)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > 0


async def test_refusals_name_what_is_wrong(client: AsyncOpenAI) -> None:
    """Too long, of another kind, and no such dimensions."""
    with pytest.raises(openai.BadRequestError, match=f"this model takes {LIMIT - 2}") as refused:
        await client.embeddings.create(model=EMBED, input=["x", "word " * LIMIT])
    assert refused.value.param == "input[1]"
    with pytest.raises(openai.BadRequestError, match="kind llm"):
        await client.embeddings.create(model=CHAT, input="x")
    with pytest.raises(openai.BadRequestError, match="kind embedding"):
        await rerank(client, EMBED, query="q", documents=["d"])
    with pytest.raises(openai.BadRequestError, match="kind reranker"):
        await client.chat.completions.create(
            model=RANK, messages=[{"role": "user", "content": "x"}]
        )
    with pytest.raises(openai.BadRequestError, match="dimensions is 64"):
        await client.embeddings.create(model=EMBED, input="x", dimensions=64)


@pytest.mark.parametrize("model", [RANK, JUDGE])
async def test_documents_are_ranked(client: AsyncOpenAI, model: str) -> None:
    """Sorted, between 0 and 1, with what was sent if asked for."""
    documents = ["one", {"text": "two words of it", "page": 2}, "three " * 8]
    answer = await rerank(client, model, query="what", documents=documents, return_documents=True)
    scores = [entry["relevance_score"] for entry in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    by_index = {entry["index"]: entry["document"] for entry in answer["results"]}
    assert by_index[1] == documents[1]
    best = await rerank(client, model, query="what", documents=documents, top_n=1)
    assert [e["index"] for e in best["results"]] == [answer["results"][0]["index"]]


async def test_all_kinds_at_once(daemon: Daemon, client: AsyncOpenAI) -> None:
    """Each in a process of its own; the death of one touches nobody else."""
    said = [{"role": "user", "content": "hello"}]

    async def talk() -> str:
        chunks = await client.chat.completions.create(
            model=CHAT,
            messages=said,  # type: ignore[arg-type]
            stream=True,
            max_tokens=60,
            temperature=0,
            extra_body={"ignore_eos": True},
        )
        return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])

    alone = await talk()
    work = [client.embeddings.create(model=EMBED, input=["text"] * 20) for _ in range(10)]
    ranked = [rerank(client, RANK, query="q", documents=["a", "b"]) for _ in range(5)]
    together, *answers = await asyncio.gather(talk(), *work, *ranked)
    assert together == alone
    assert len(answers) == 15
    pid = daemon.model(EMBED)["pid"]
    stream = asyncio.create_task(talk())
    os.kill(pid, signal.SIGKILL)
    assert await stream == alone
    again = await client.embeddings.create(model=EMBED, input="x")
    assert len(again.data) == 1
