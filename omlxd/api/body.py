"""Reading a request's JSON body, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.types import Receive

from omlxd.api.access import Headers
from omlxd.errors import BodyTooLarge, MediaTypeRefused, RequestInvalid

MAX_BODY_BYTES = 64 * 2**20

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


def check_headers(headers: Headers, *, limit: int = MAX_BODY_BYTES) -> None:
    """Refuses before a byte of the body is read. A web page cannot send JSON unasked."""
    media = [value.partition(b";")[0].strip().lower() for value in _all(headers, b"content-type")]
    if media != [b"application/json"]:
        raise MediaTypeRefused("Send the body with content-type: application/json.")
    if any(value.lower() != b"identity" for value in _all(headers, b"content-encoding")):
        raise MediaTypeRefused("Send the body without a content-encoding.")
    if any(int(value) > limit for value in _all(headers, b"content-length")):
        raise _too_large(limit)


async def read_object(receive: Receive, *, limit: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The body as a JSON object; raises RequestInvalid, BodyTooLarge or ClientGone."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return decode_object(bytes(body))


async def while_there(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """`work`, once the body was read; ClientGone ends it if the client leaves."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def decode_object(body: bytes) -> dict[str, Any]:
    """JSON bytes → object; NaN and infinities are no JSON. Raises RequestInvalid."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        problem = str(error).removeprefix("JSON is malformed: ")
        if "(byte" not in problem:
            problem += f" (in {len(body)} bytes)"
        raise RequestInvalid(f"The body is not valid JSON: {problem}.") from None
    except RecursionError:
        raise RequestInvalid("The body is nested too deeply.") from None
    if not isinstance(value, dict):
        raise RequestInvalid("The body must be a JSON object.")
    return value


def _all(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limit >> 20} MiB. Send less at once.")
