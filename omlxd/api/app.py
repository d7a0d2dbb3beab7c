"""The HTTP application: guard → routes, and every failure in the family's own envelope."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from omlxd.api.guard import Guard
from omlxd.api.media import MediaReader
from omlxd.api.meter import Meter
from omlxd.api.ports import Gateway, RequestRecord
from omlxd.api.respond import REQUEST_ID
from omlxd.api.routes import JSON, Row, route_table
from omlxd.api.stream import Clock, Pace, WallClock
from omlxd.api.wire.errors import error_for, retry_after
from omlxd.errors import EngineFailed, MethodRefused, NotFound, OmlxError


def create_app(
    gateway: Gateway,
    *,
    clock: Clock | None = None,
    pace: Pace | None = None,
    media: MediaReader | None = None,
) -> ASGIApp:
    """An ASGI application; it has no lifespan. Settings are read anew for every request."""
    clock = clock or WallClock()
    rows = route_table(gateway, clock=clock, pace=pace or Pace(), media=media)
    apis = {row.path: row.api for row in rows if row.api}

    def refused(scope: Scope, error: OmlxError) -> None:
        """A refusal on a model route is recorded like any other end of a request there."""
        if scope["method"] == "POST" and scope["path"] in apis:
            record = RequestRecord(request_id=scope[REQUEST_ID], api=apis[scope["path"]])
            meter = Meter(record, clock.now(), keep=gateway.record)
            meter.fail(error)
            meter.close(clock.now())

    app = Starlette(
        routes=[Route(row.path, row.endpoint, methods=[row.method]) for row in rows],
        middleware=[
            Middleware(
                Guard,
                gateway=gateway,
                open_paths=[row.path for row in rows if row.scope == "open"],
                tool_paths=[row.path for row in rows if row.scope == "tools"],
                refused=refused,
            )
        ],
        exception_handlers={
            HTTPException: _Refusals(rows),
            OmlxError: _omlx_error,
            Exception: _bug,
        },
    )
    app.router.redirect_slashes = False
    return app


class _Refusals:
    """What the router itself refuses: an unknown path or a wrong method."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._routes = ", ".join(f"{row.method} {row.path.replace(':path', '')}" for row in rows)

    async def __call__(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = f"{request.method} {request.scope['path']}"
        refusal: OmlxError
        if error.status_code == 405:
            refusal = MethodRefused(f"There is no {what}. The routes are: {self._routes}.")
        else:
            refusal = NotFound(f"There is no route {what}. The routes are: {self._routes}.")
        return _response(request, refusal, dict(error.headers or {}))


async def _omlx_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OmlxError)
    return _response(request, error, {})


async def _bug(request: Request, error: Exception) -> Response:
    return _response(request, EngineFailed("The server failed; its log has the details."), {})


def _response(request: Request, error: OmlxError, headers: dict[str, str]) -> Response:
    if (seconds := retry_after(error)) is not None:
        headers["retry-after"] = seconds
    scope = request.scope
    body = error_for(scope["path"], error, scope.get(REQUEST_ID, ""))
    return Response(body, status_code=error.status, headers=headers, media_type=JSON)
