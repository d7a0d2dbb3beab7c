"""Whole answers over raw ASGI: JSON, and errors in the envelope of the route's family."""

from __future__ import annotations

from starlette.types import Scope, Send

from omlxd.api.wire.errors import error_for, retry_after
from omlxd.errors import BodyTooLarge, OmlxError

REQUEST_ID = "omlxd.request_id"  # key of the scope
RawHeaders = list[tuple[bytes, bytes]]


async def send_body(
    send: Send, body: bytes, *, status: int = 200, headers: RawHeaders | None = None
) -> None:
    """One JSON answer with a known length."""
    raw = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *(headers or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def send_error(
    scope: Scope, send: Send, error: OmlxError, *, headers: RawHeaders | None = None
) -> None:
    body = error_for(scope["path"], error, scope[REQUEST_ID])
    raw = list(headers or [])
    if (seconds := retry_after(error)) is not None:
        raw.append((b"retry-after", seconds.encode()))
    if isinstance(error, BodyTooLarge):
        raw.append((b"connection", b"close"))  # the rest of the body is still on its way
    await send_body(send, body, status=error.status, headers=raw)
