"""Address, request body and event stream of `omlxctl chat`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from omlxctl.chatstream import Delta, address, body, deltas, error_message
from omlxctl.exits import CtlError


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("localhost:80", ("localhost", 80)),
        ("0.0.0.0:8000", ("127.0.0.1", 8000)),
        ("[::]:8000", ("::1", 8000)),
        ("[::1]:9", ("::1", 9)),
        (":8000", ("127.0.0.1", 8000)),
    ],
)
def test_every_address_is_reached(listen: str, expected: tuple[str, int]) -> None:
    """A listener on all addresses is reached over loopback."""
    assert address([listen]) == expected


def test_no_listener_is_an_error() -> None:
    """Without an HTTP listener there is nobody to talk to."""
    with pytest.raises(CtlError, match="no HTTP listener"):
        address([])


def test_only_what_was_asked_for_is_sent() -> None:
    """Parameters that were not given are left to the server."""
    messages = [{"role": "user", "content": "hi"}]
    bare = body("M", messages, max_tokens=None, temperature=None)
    assert bare == {"model": "M", "messages": messages, "stream": True}
    full = body("M", messages, max_tokens=5, temperature=0.0)
    assert (full["max_tokens"], full["temperature"]) == (5, 0.0)


def events(*parts: Any, done: bool = True) -> Iterable[bytes]:
    for part in parts:
        yield f"data: {json.dumps(part)}\n".encode()
        yield b"\n"
    if done:
        yield b"data: [DONE]\n"
        yield b"never read\n"


def chunk(**delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def test_text_and_reasoning_come_out_of_the_stream() -> None:
    """Content and reasoning are told apart; comments, roles and usage are passed over."""
    stream = [b": keep-alive\n", *events(chunk(role="assistant"), chunk(reasoning_content="hm"))]
    stream = stream[:-2] + list(events(chunk(content="Hi"), {"choices": [], "usage": {}}))
    assert list(deltas(stream)) == [Delta(reasoning="hm"), Delta(text="Hi")]


def test_an_error_event_ends_the_reply() -> None:
    """An error in the stream is raised with its own message."""
    stream = deltas(events(chunk(content="a"), {"error": {"message": "the worker died"}}))
    assert next(stream) == Delta(text="a")
    with pytest.raises(CtlError, match=r"^the worker died$"):
        next(stream)


def test_a_stream_without_an_end_is_an_error() -> None:
    """A reply that just stops is not taken for a whole one."""
    with pytest.raises(CtlError, match="broke off"):
        list(deltas(events(chunk(content="a"), done=False)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"error": {"message": "no key"}}', "no key"),
        (b"bad gateway", "bad gateway"),
        (b'{"error": "flat"}', '{"error": "flat"}'),
        (b"[]", "[]"),
    ],
)
def test_an_error_of_any_shape_has_a_message(data: bytes, message: str) -> None:
    """The envelope's message where there is one, else the text."""
    assert error_message(data) == message
