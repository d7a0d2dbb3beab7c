"""Server-sent events: the frames that every streaming dialect is made of."""

from __future__ import annotations

KEEP_ALIVE = b": keep-alive\n\n"  # a comment: clients skip it, proxies and timers see life
DONE = b"data: [DONE]\n\n"


def data(payload: bytes) -> bytes:
    """One event without a name. `payload` is JSON on a single line."""
    return b"data: " + payload + b"\n\n"


def event(name: str, payload: bytes) -> bytes:
    """One named event. `payload` is JSON on a single line."""
    return b"event: " + name.encode("ascii") + b"\ndata: " + payload + b"\n\n"
