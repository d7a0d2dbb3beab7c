"""A gateway whose models answer from a script; keeps what it was asked and what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from omlxd.api.ports import Readiness, RequestRecord, ServedModel, ServerSettings, ToolServers
from omlxd.errors import ModelNotFound
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Finished,
    GenerateRequest,
    Request,
    TokenLogprob,
    Usage,
)
from omlxd.ipc.vectors import EmbedRequest, Score, ScoreRequest, Vector
from omlxd.mcp.pool import ToolPool

Script = Callable[[GenerateRequest], AsyncIterator[Event]]

LLM = ServedModel(
    id="org/tiny",
    kind="llm",
    aliases=("small",),
    max_context=3072,
    model_context=4096,
    max_output_tokens=1024,
    created=1_700_000_000,
)
EMBEDDER = ServedModel(id="embedder", kind="embedding", max_context=512, created=1_700_000_001)
RANKER = ServedModel(id="ranker", kind="reranker", max_context=512, created=1_700_000_002)
WORDS = ("Hel", "lo, ", "wörld", "!")


async def say_words(request: GenerateRequest) -> AsyncIterator[Event]:
    """Every choice says WORDS, one token each, choices in turn; a 7-token prompt, 4 cached."""
    yield Accepted(request.request_id, 7)
    for word in WORDS:
        for index in range(request.n):
            yield Delta(request.request_id, index, word, logprobs=_logprobs(request, word))
    for index in range(request.n):
        yield Finished(request.request_id, index, "stop")
    yield completed(request, output_tokens=len(WORDS) * request.n)


async def answer_inputs(request: EmbedRequest | ScoreRequest) -> AsyncIterator[Event]:
    """One input, one token."""
    yield Accepted(request.request_id, 1)
    if isinstance(request, EmbedRequest):
        yield Vector(request.request_id, 0, bytes(8))
    else:
        yield Score(request.request_id, 0, 0.5)
    yield Completed(request.request_id, Usage(prompt_tokens=1, computed=1))


def completed(request: GenerateRequest, *, output_tokens: int) -> Completed:
    usage = Usage(
        prompt_tokens=7, output_tokens=output_tokens, cached_tokens=4, ram=3, ssd=1, computed=3
    )
    return Completed(request.request_id, usage, queue_ms=2.5)


def _logprobs(request: GenerateRequest, word: str) -> list[TokenLogprob] | None:
    if request.top_logprobs is None:
        return None
    top = [(word, -0.5, word.encode()), ("~", float("-inf"), b"~")]
    return [TokenLogprob(word, -0.5, word.encode(), top[: request.top_logprobs])]


class FakeGateway:
    """Implements `omlxd.api.ports.Gateway`."""

    def __init__(
        self,
        script: Script = say_words,
        *,
        models: tuple[ServedModel, ...] = (LLM, EMBEDDER, RANKER),
        settings: ServerSettings | None = None,
    ) -> None:
        self.script = script
        self.served = models
        self.settings = settings or ServerSettings()
        self.ready = Readiness(True)
        self.tools: ToolServers = ToolPool(Path("/"))
        self.requests: list[GenerateRequest] = []
        self.timeouts: list[float | None] = []
        self.cancelled: list[str] = []  # left before their `Completed`
        self.records: list[RequestRecord] = []
        self.recorded = asyncio.Event()

    def models(self) -> tuple[ServedModel, ...]:
        return self.served

    def resolve(self, name: str) -> ServedModel:
        return self.find(name)

    def find(self, name: str) -> ServedModel:
        for model in self.served:
            if name in (model.id, *model.aliases):
                return model
        ids = ", ".join(model.id for model in self.served)
        raise ModelNotFound(f"model {name!r} does not exist; there are: {ids}", param="model")

    def readiness(self) -> Readiness:
        return self.ready

    @asynccontextmanager
    async def generate(
        self, request: Request, *, timeout_s: float | None = None
    ) -> AsyncIterator[AsyncIterator[Event]]:
        if isinstance(request, GenerateRequest):
            self.requests.append(request)
            script = self.script(request)
        else:
            script = answer_inputs(request)
        self.timeouts.append(timeout_s)
        ended = False

        async def events() -> AsyncIterator[Event]:
            nonlocal ended
            async for event in script:
                ended = isinstance(event, Completed)
                yield event

        try:
            yield events()
        finally:
            if not ended:
                self.cancelled.append(request.request_id)

    def metrics(self) -> bytes:
        return b"omlxd_requests_running 0.0\n"

    def record(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.recorded.set()
