"""The prefix cache on the control socket."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from omlxd.control.cache_wire import CacheTarget
from omlxd.control.ports import Control
from omlxd.control.respond import as_json, as_lines, body


async def stats(control: Control, request: Request) -> Response:
    return as_json(control.cache.stats())


async def entries(control: Control, request: Request) -> Response:
    return as_json(await control.cache.entries())


async def verify(control: Control, request: Request) -> Response:
    target = await body(request, CacheTarget)
    return as_lines(control.cache.verify(target.model))


async def collect(control: Control, request: Request) -> Response:
    return as_json(await control.cache.collect())


async def clear(control: Control, request: Request) -> Response:
    target = await body(request, CacheTarget)
    return as_json(await control.cache.clear(target.model))


async def why(control: Control, request: Request) -> Response:
    return as_json(control.cache.why(request.path_params["id"]))
