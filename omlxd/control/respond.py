"""Requests and answers of the control socket, in the one form they have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from omlxd.errors import RequestInvalid

T = TypeVar("T")


def flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "0")
    if value not in ("0", "1"):
        raise RequestInvalid(f"{name}={value} is not understood; use {name}=1 or {name}=0")
    return value == "1"


async def body(request: Request, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body(), type=shape)
    except msgspec.DecodeError as error:
        raise RequestInvalid(f"{request.method} {request.url.path}: {error}") from error


def as_json(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def as_lines(values: AsyncIterator[Any]) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        async for value in values:
            yield msgspec.json.encode(value) + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")
