"""HTTP/1.1 with JSON on the control socket: for omlxctl, scrapers of metrics and scripts.

The socket's mode (0600) is the only key. A request with an Origin header comes from a browser page
and is refused. Every answer names the daemon's version; every refusal is an `ErrorBody`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omlxd import __version__
from omlxd.control import cache_routes
from omlxd.control.lookup import find_model
from omlxd.control.ports import Control
from omlxd.control.respond import as_json, as_lines, body, flag
from omlxd.control.wire import (
    ErrorBody,
    Event,
    ModelList,
    PlanRequest,
    RequestList,
    SettingsPatch,
    VersionInfo,
)
from omlxd.errors import (
    Forbidden,
    MethodRefused,
    NotFound,
    OmlxError,
    RequestInvalid,
    SpecInvalid,
)

Endpoint = Callable[[Control, Request], Awaitable[Response]]


def create_control_app(control: Control) -> ASGIApp:
    """The ASGI app of the control socket; it holds no state of its own."""
    routes = [
        Route(path, _bind(endpoint, control), methods=[method])
        for (path, method), endpoint in HANDLERS.items()
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            OmlxError: _refuse,
            HTTPException: _refuse_http,
            Exception: _refuse_unexpected,
        },
    )
    return _Door(app)


# ------------------------------------------------------------------ reads


async def _status(control: Control, request: Request) -> Response:
    if flag(request, "watch"):
        return as_lines(control.follow_status())
    return as_json(control.status())


async def _version(control: Control, request: Request) -> Response:
    return as_json(VersionInfo(version=__version__))


async def _models(control: Control, request: Request) -> Response:
    return as_json(ModelList(models=control.status().models))


async def _model(control: Control, request: Request) -> Response:
    return as_json(find_model(control.status().models, request.path_params["id"]))


async def _requests(control: Control, request: Request) -> Response:
    return as_json(RequestList(requests=control.requests()))


async def _config(control: Control, request: Request) -> Response:
    return as_json(control.config_view())


async def _events(control: Control, request: Request) -> Response:
    return as_lines(_past_events(control, follow=flag(request, "follow")))


async def _metrics(control: Control, request: Request) -> Response:
    return Response(control.metrics(), media_type=CONTENT_TYPE_LATEST)


# ------------------------------------------------------------------ writes


async def _load(control: Control, request: Request) -> Response:
    return as_json(await control.load(request.path_params["id"]))


async def _unload(control: Control, request: Request) -> Response:
    return as_json(await control.unload(request.path_params["id"]))


async def _settings(control: Control, request: Request) -> Response:
    return as_json(await control.patch_settings(await body(request, SettingsPatch)))


async def _plan(control: Control, request: Request) -> Response:
    asked = await body(request, PlanRequest)
    return as_json(await control.plan(asked.text, asked.file))


async def _reload(control: Control, request: Request) -> Response:
    return as_json(await control.reload())


# Sorted, so that a path and its method are found at a glance; a test holds the order.
# `{id}` is percent-encoded by the caller and may hold a slash.
HANDLERS: dict[tuple[str, str], Endpoint] = {
    ("/metrics", "GET"): _metrics,
    ("/v1/cache", "GET"): cache_routes.stats,
    ("/v1/cache/clear", "POST"): cache_routes.clear,
    ("/v1/cache/entries", "GET"): cache_routes.entries,
    ("/v1/cache/gc", "POST"): cache_routes.collect,
    ("/v1/cache/verify", "POST"): cache_routes.verify,
    ("/v1/config", "GET"): _config,
    ("/v1/events", "GET"): _events,
    ("/v1/models", "GET"): _models,
    ("/v1/models/{id:path}", "GET"): _model,
    ("/v1/models/{id:path}/load", "POST"): _load,
    ("/v1/models/{id:path}/unload", "POST"): _unload,
    ("/v1/plan", "POST"): _plan,
    ("/v1/reload", "POST"): _reload,
    ("/v1/requests", "GET"): _requests,
    ("/v1/requests/{id}/why", "GET"): cache_routes.why,
    ("/v1/settings", "PATCH"): _settings,
    ("/v1/status", "GET"): _status,
    ("/v1/version", "GET"): _version,
}


# ------------------------------------------------------------------ parts


async def _past_events(control: Control, *, follow: bool) -> AsyncIterator[Event]:
    """The ring, then what comes; following starts first, so nothing falls between the two."""
    if not follow:
        for event in control.events():
            yield event
        return
    upcoming = aiter(control.follow_events())
    first = asyncio.ensure_future(anext(upcoming, None))
    try:
        await asyncio.sleep(0)  # the first step of the iterator is what subscribes
        last = -1
        for event in control.events():
            yield event
            last = event.seq
        next_one = await first
        if next_one is not None and next_one.seq > last:
            yield next_one
        async for event in upcoming:
            if event.seq > last:
                yield event
    finally:
        first.cancel()


def _bind(endpoint: Endpoint, control: Control) -> Callable[[Request], Awaitable[Response]]:
    async def bound(request: Request) -> Response:
        return await endpoint(control, request)

    return bound


# ------------------------------------------------------------------ refusals


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, OmlxError)
    problems = list(error.problems) if isinstance(error, SpecInvalid) else []
    answer = as_json(ErrorBody(error.code, error.message, problems), status=error.status)
    if error.retry_after_s is not None:
        answer.headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return answer


async def _refuse_http(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    kinds = {kind.status: kind for kind in (NotFound, MethodRefused)}
    kind = kinds.get(error.status_code, RequestInvalid)
    return await _refuse(request, kind(f"{request.method} {request.url.path}: {error.detail}"))


async def _refuse_unexpected(request: Request, error: Exception) -> Response:
    """Our own bug; starlette raises it again after this answer, so it reaches the log."""
    what = f"{request.method} {request.url.path}: {type(error).__name__}: {error}"
    return as_json(ErrorBody(OmlxError.code, what), status=OmlxError.status)


class _Door:
    """Refuses browsers, and puts the version on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_versioned(message: Message) -> None:
            if message["type"] == "http.response.start":
                version = (b"omlxd-version", __version__.encode())
                message = {**message, "headers": [*message["headers"], version]}
            await send(message)

        if any(name == b"origin" for name, _ in scope["headers"]):
            error = Forbidden("the control socket does not answer browsers (Origin header)")
            refusal = await _refuse(Request(scope), error)
            await refusal(scope, receive, send_versioned)
            return
        await self._app(scope, receive, send_versioned)
