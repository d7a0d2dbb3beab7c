"""The table of routes: one row each. A route that is not marked open needs a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from omlxd.api.generate import GenerateRoute
from omlxd.api.media import MediaReader
from omlxd.api.ports import Gateway
from omlxd.api.stream import Clock, Pace
from omlxd.api.tool_routes import ToolRoutes
from omlxd.api.wire import (
    anthropic,
    embeddings,
    models,
    openai_chat,
    openai_completions,
    rerank,
    responses,
)
from omlxd.api.wire.dialect import Dialect
from omlxd.errors import NotFound

JSON = "application/json"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    path: str
    method: Literal["GET", "POST"]
    scope: Literal["open", "key", "tools"]
    endpoint: Callable[..., Any]  # starlette's request handler, or an ASGI object
    api: str = ""  # dialect of a model route; every request there is recorded


class Reads:
    """The routes that only read."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def models(self, request: Request) -> Response:
        return Response(models.model_list(self._gateway.models()), media_type=JSON)

    async def model(self, request: Request) -> Response:
        name = request.path_params["id"]
        found = self._gateway.find(name)
        return Response(models.model_entry(found, name), media_type=JSON)

    async def healthz(self, request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type=JSON)

    async def readyz(self, request: Request) -> Response:
        # The reason may name models, and nobody was asked for a key: status has it.
        if self._gateway.readiness().ready:
            return Response(b'{"status":"ready"}', media_type=JSON)
        return Response(b'{"status":"not ready"}', status_code=503, media_type=JSON)

    async def metrics(self, request: Request) -> Response:
        if not self._gateway.settings.metrics:
            raise NotFound("/metrics is off here; set server.metrics, or use the control socket.")
        return Response(self._gateway.metrics(), headers={"content-type": METRICS})


def route_table(
    gateway: Gateway, *, clock: Clock, pace: Pace, media: MediaReader | None = None
) -> tuple[Row, ...]:
    reads = Reads(gateway)
    reader = media or MediaReader()
    tools = ToolRoutes(gateway)

    def generates(path: str, dialect: Dialect) -> Row:
        endpoint = GenerateRoute(gateway, dialect, reader, clock=clock, pace=pace)
        return Row(path=path, method="POST", scope="key", endpoint=endpoint, api=dialect.name)

    return (
        generates("/v1/chat/completions", openai_chat.DIALECT),
        generates("/v1/completions", openai_completions.DIALECT),
        generates("/v1/responses", responses.DIALECT),
        generates("/v1/messages", anthropic.DIALECT),
        generates("/v1/embeddings", embeddings.DIALECT),
        generates("/v1/rerank", rerank.DIALECT),
        generates("/rerank", rerank.DIALECT),
        generates("/v1/messages/count_tokens", anthropic.COUNT_DIALECT),
        Row(path="/v1/models", method="GET", scope="key", endpoint=reads.models),
        Row(path="/v1/models/{id:path}", method="GET", scope="key", endpoint=reads.model),
        Row(path="/v1/mcp/servers", method="GET", scope="tools", endpoint=tools.servers),
        Row(path="/v1/mcp/tools", method="GET", scope="tools", endpoint=tools.tools),
        Row(path="/v1/mcp/execute", method="POST", scope="tools", endpoint=tools.execute),
        Row(path="/healthz", method="GET", scope="open", endpoint=reads.healthz),
        Row(path="/readyz", method="GET", scope="open", endpoint=reads.readyz),
        Row(path="/metrics", method="GET", scope="key", endpoint=reads.metrics),
    )
