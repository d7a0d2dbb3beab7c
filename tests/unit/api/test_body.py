"""Request bodies: a JSON object within limits, or a refusal that says why."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlxd.api.body import ClientGone, check_headers, decode_object, read_object
from omlxd.errors import BodyTooLarge, MediaTypeRefused, RequestInvalid

JSON = (b"content-type", b"application/json; charset=utf-8")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/x-www-form-urlencoded")],
        [(b"content-type", b"application/jsonx")],
        [JSON, (b"content-type", b"text/plain")],
        [JSON, (b"content-encoding", b"gzip")],
    ],
)
def test_media_types_that_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """Only one plain application/json is read: a web page cannot send that unasked."""
    with pytest.raises(MediaTypeRefused):
        check_headers(headers)


def test_declared_length() -> None:
    """A body that says it is too long is refused before it is read."""
    check_headers([JSON, (b"content-length", b"10")], limit=10)
    with pytest.raises(BodyTooLarge):
        check_headers([JSON, (b"content-length", b"11")], limit=10)


async def read(*messages: dict[str, Any], limit: int = 100) -> dict[str, Any]:
    queue = list(messages)

    async def receive() -> dict[str, Any]:
        return queue.pop(0)

    return await read_object(receive, limit=limit)


async def test_a_body_in_pieces() -> None:
    """Pieces are put together; the limit holds over their sum, without waiting for the end."""
    first = {"type": "http.request", "body": b'{"a":', "more_body": True}
    last = {"type": "http.request", "body": b"1}", "more_body": False}
    assert await read(first, last) == {"a": 1}
    with pytest.raises(BodyTooLarge):
        await read(first, first, limit=9)
    with pytest.raises(ClientGone):
        await read(first, {"type": "http.disconnect"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": NaN}', "byte 6"),
        (b'{"a": -Infinity}', "byte 7"),
        (b'{"a": 1,}', "byte 8"),
        (b'{"a": 1', "in 7 bytes"),
        (b"", "in 0 bytes"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"a": 1e999}', "out of range"),
        (b'"text"', "object"),
        (b"[1]", "object"),
        (b"[" * 100_000, "nested"),
    ],
)
def test_bodies_that_are_refused(body: bytes, words: str) -> None:
    """What is no JSON object is refused, with the position where there is one."""
    with pytest.raises(RequestInvalid, match=words) as refusal:
        decode_object(body)
    assert refusal.value.status == 400


@given(st.binary(max_size=40))
def test_any_bytes(body: bytes) -> None:
    """The only failure is RequestInvalid."""
    with contextlib.suppress(RequestInvalid):
        assert isinstance(decode_object(body), dict)
