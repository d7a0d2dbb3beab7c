"""The seams inside a worker. Three parties, each with threads of its own:

host (main thread: frames in) · text (accept thread: template, tokenise; text thread: detokenise,
stop strings, frames out) · engine (owns every MLX call). Text never touches MLX, the engine never
touches text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from omlxd.errors import OmlxError
from omlxd.ipc.messages import (
    CacheCommand,
    CacheDone,
    CacheEvicted,
    CacheReport,
    LiveSettings,
    LoadSettings,
    PrefixMatch,
    RowStats,
)

CacheFrame = CacheReport | CacheEvicted | CacheDone


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSampling:
    """Every value decided: the request's, else the spec's, else the model's, else omlxd's."""

    temperature: float = 1.0  # 0 = greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


# (tokens so far (n,), logits (1, vocabulary)) → logits; of one row, called once per token.
Guide = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """One choice of one request, ready for the engine."""

    request_id: str
    index: int
    prompt: Sequence[int]  # token ids, at least one
    max_tokens: int  # at least one
    sampling: ResolvedSampling
    stop_tokens: frozenset[int]  # end-of-turn ids; empty = ignore_eos
    top_logprobs: int | None = None
    guides: Sequence[Callable[[int], Guide]] = ()  # made anew from the prompt's length


@dataclass(frozen=True, slots=True)
class TokenOut:
    """One generated token. A token that ended its row by "stop" is not part of the text."""

    request_id: str
    index: int
    token: int
    finish: Literal["stop", "length"] | None = None
    logprob: float = 0.0
    top: Sequence[tuple[int, float]] = ()  # (token id, log-probability), most likely first


@dataclass(frozen=True, slots=True)
class RowUsage:
    """Where one row's prompt tokens came from.

    Sent with the row's first token, when its prompt is done: a row may be cancelled at any later
    token (a stop string), and nothing follows a cancel. Sent again later, the newer one counts.
    """

    request_id: str
    index: int
    cached_ram: int = 0
    cached_ssd: int = 0
    computed: int = 0
    match: PrefixMatch | None = None  # where there is a prefix cache


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What is known once the weights are in."""

    weights_bytes: int
    batches: bool
    batch_reason: str = ""
    kv_bytes_per_token: int = 0
    prefix_reuse: bool = False
    prefix_reuse_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    running: int
    waiting: int
    active_bytes: int
    cache_bytes: int
    prefill_tps: float = 0.0
    decode_tps: float = 0.0
    rows: Sequence[RowStats] = ()


class EngineListener(Protocol):
    """Called on the engine thread; implementations only enqueue."""

    def on_scheduled(self, request_id: str) -> None:
        """First row of the request left the queue (ends `queue_ms`)."""
        ...

    def on_tokens(self, tokens: Sequence[TokenOut], ended: Sequence[RowUsage]) -> None:
        """All tokens of one step; `ended` holds the usage of rows whose prompt ended with it."""
        ...

    def on_failed(self, request_id: str, error: OmlxError) -> None:
        """Terminal for the whole request; its rows are gone from the engine."""
        ...

    def on_stats(self, stats: EngineStats) -> None: ...

    def on_cache(self, frame: CacheFrame) -> None:
        """What the daemon is to be told of the prefix cache, as it is."""
        ...


class Engine(Protocol):
    """One model under continuous batching. All methods are thread-safe and never block."""

    def submit(self, rows: Sequence[RowJob]) -> None:
        """All rows of one request, in one call."""
        ...

    def cancel(self, request_id: str, index: int | None = None) -> None:
        """Drop the request, or one of its rows; unknown ids are ignored. No event follows."""
        ...

    def configure(self, live: LiveSettings) -> None: ...

    def command_cache(self, command: CacheCommand) -> None:
        """Answered by a `CacheDone` through `on_cache`, once the weights are in."""
        ...


class LoadError(Exception):
    """The weights or the tokenizer cannot be used; `permanent` = not until files change."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


class EngineRun(Engine, Protocol):
    """An engine with its thread, as the host drives it; what comes before the weights waits."""

    @property
    def facts(self) -> Future[EngineFacts]:
        """Done when the weights are in; holds LoadError when they cannot be."""
        ...

    @property
    def ended(self) -> Future[None]:
        """Done when the thread ends: None after `stop` or a failed load, else what broke it."""
        ...

    def stop(self) -> None:
        """End the thread after the step at hand and wait for it; running rows get no event."""
        ...


EngineFactory = Callable[[LoadSettings, LiveSettings, EngineListener], EngineRun]
