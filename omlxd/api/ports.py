"""What the HTTP side needs of the daemon; the daemon's gateway implements it, tests fake it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from omlxd.ipc.messages import Event, Kind, Request
from omlxd.mcp.types import Limits, Offer, Result, ServerView


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model as clients see it."""

    id: str
    kind: Kind
    aliases: tuple[str, ...] = ()
    max_context: int | None = None  # reported window: served window × context_scale_factor, tokens
    model_context: int | None = None  # the architecture's own window, tokens
    max_output_tokens: int | None = None
    created: int = 0  # mtime of config.json, Unix seconds
    phase: str = "absent"
    pin: bool = False
    mcp: tuple[str, ...] = ()  # tool servers that its conversations are offered


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """`[server]` as the HTTP side uses it; a new object after every accepted change."""

    api_keys: tuple[str, ...] = ()
    admin_keys: tuple[str, ...] = ()
    require_key_on_loopback: bool = False
    allowed_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "[::1]")
    listen_hosts: tuple[str, ...] = ()  # hosts of `server.listen`, no ports; allowed as Host too
    cors_origins: tuple[str, ...] = ()
    metrics: bool = False
    request_timeout_s: float | None = None
    log_prompts: bool = False
    media_roots: tuple[Path, ...] = ()  # absolute folders that pictures may be read from
    allow_remote_media: bool = False


@dataclass(frozen=True, slots=True)
class Readiness:
    """`/readyz`: every pinned model ready."""

    ready: bool
    reason: str = ""


@dataclass(slots=True)
class RequestRecord:
    """What the `request` log line and the request metrics are made from; filled as it goes."""

    request_id: str
    api: str
    model: str = ""
    stream: bool = False
    status: int = 0
    finish_reason: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cache: dict[str, int] = field(default_factory=lambda: {"ram": 0, "ssd": 0, "computed": 0})
    queue_ms: float = 0.0
    ttft_ms: float | None = None
    latency_ms: float = 0.0
    output_tps: float | None = None
    media_omitted: int = 0  # pictures and files that a text model was sent
    error: str = ""


class ToolServers(Protocol):
    """Tool servers, under one policy for all who use them."""

    @property
    def limits(self) -> Limits: ...

    def servers(self) -> tuple[ServerView, ...]: ...

    async def offered(self, names: Sequence[str] | None = None) -> Offer:
        """Tools of these servers, or of all; those that are not running are started."""
        ...

    async def call(self, name: str, arguments: dict[str, Any], *, request_id: str) -> Result:
        """Run one tool by its offered name. Raises OmlxError; a tool's own failure is a result."""
        ...


class Gateway(Protocol):
    """Models and the way to them."""

    @property
    def tools(self) -> ToolServers: ...

    @property
    def settings(self) -> ServerSettings: ...

    def models(self) -> tuple[ServedModel, ...]: ...

    def find(self, name: str) -> ServedModel:
        """By id, alias or unique short name; raises ModelNotFound."""
        ...

    def resolve(self, name: str) -> ServedModel:
        """As `find`, or else `server.fallback_model`."""
        ...

    def readiness(self) -> Readiness: ...

    def generate(
        self, request: Request, *, timeout_s: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """The event stream of one request; the engine is loaded if it must be.

        Failures, before or after `Accepted`, are raised from the iterator as OmlxError (the
        iterator never yields `Failed`); the last event is `Completed`. Leaving the context before
        that cancels the request in whatever phase it is.
        """
        ...

    def metrics(self) -> bytes:
        """Prometheus text format, for `/metrics` when `settings.metrics` is on."""
        ...

    def record(self, record: RequestRecord) -> None:
        """Exactly once per request on a model route: writes the `request` log line and metrics."""
        ...
