"""Chat streams that tests hold open, through the official SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI, AsyncStream
from openai.types.chat import ChatCompletionChunk


def client(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


class Stream:
    """One streamed reply."""

    def __init__(self, chunks: AsyncStream[ChatCompletionChunk]) -> None:
        self._chunks = chunks
        self.text = ""
        self.finish: str | None = None

    async def some(self) -> None:
        """Read until a piece of text came."""
        async for chunk in self._chunks:
            if self._take(chunk):
                return
        raise AssertionError("the stream ended")

    async def rest(self) -> None:
        async for chunk in self._chunks:
            self._take(chunk)

    async def hang_up(self) -> None:
        await self._chunks.close()

    def _take(self, chunk: ChatCompletionChunk) -> bool:
        if not chunk.choices:
            return False
        self.finish = chunk.choices[0].finish_reason or self.finish
        piece = chunk.choices[0].delta.content or ""
        self.text += piece
        return bool(piece)


async def open_stream(openai: AsyncOpenAI, model: str, text: str, **more: Any) -> Stream:
    """A greedy reply that goes on until `max_tokens`."""
    return Stream(
        await openai.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": text}],
            stream=True,
            temperature=0,
            extra_body={"ignore_eos": True},
            **more,
        )
    )


@asynccontextmanager
async def streams(
    url: str, count: int, *, model: str, tokens: int = 400
) -> AsyncIterator[list[Stream]]:
    """`count` running replies of `tokens` tokens; each has sent something."""
    async with client(url) as openai:
        opened = [
            await open_stream(openai, model, f"story {i}", max_tokens=tokens) for i in range(count)
        ]
        for stream in opened:
            await stream.some()
        yield opened
