"""Bytes to frames and back, without a socket.

A frame is its payload's length, four bytes big-endian, then the payload. An empty frame does not
exist, and none is longer than MAX_PAYLOAD: any other length means that the two sides no longer
agree on where a frame starts, and nothing after it can be trusted.
"""

from __future__ import annotations

HEADER_BYTES = 4
MAX_PAYLOAD = 256 * 1024 * 1024


class FramingError(Exception):
    """A length that cannot be. `complete` holds the frames that ended before it."""

    def __init__(self, message: str, *, complete: list[bytes] | None = None) -> None:
        super().__init__(message)
        self.complete = complete or []


def encode(payload: bytes) -> bytes:
    """The frame that carries `payload`; raises FramingError if none can."""
    if problem := _length_problem(len(payload)):
        raise FramingError(problem)
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


class Framer:
    """Collects received bytes and cuts them into payloads. Broken for good after an error."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._broken = ""

    @property
    def pending_bytes(self) -> int:
        """Received bytes of a frame that is not complete; 0 = the peer may end here."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Payloads that are complete now, in order; raises FramingError, now and ever after."""
        if self._broken:
            raise FramingError(self._broken)
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        start = 0
        while len(buffer) - start >= HEADER_BYTES:
            body = start + HEADER_BYTES
            length = int.from_bytes(buffer[start:body], "big")
            if problem := _length_problem(length):
                self._broken = problem
                buffer.clear()
                raise FramingError(problem, complete=frames)
            if len(buffer) - body < length:
                break
            with memoryview(buffer) as view:
                frames.append(bytes(view[body : body + length]))
            start = body + length
        del buffer[:start]
        return frames


def _length_problem(length: int) -> str:
    if length == 0:
        return "a frame of no bytes: the two sides do not agree on where frames start"
    if length > MAX_PAYLOAD:
        return f"a frame of {length} bytes, and {MAX_PAYLOAD} is the most there can be"
    return ""
