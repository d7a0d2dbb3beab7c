"""Typed messages over a connected Unix stream socket: blocking in a worker, asyncio in the daemon.

A frame that cannot be decoded ends the channel: after it nothing the peer says can be trusted.
The two sides live and die as one release, so there is no skipping of unknown messages.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from msgspec import MsgspecError
from msgspec.msgpack import Decoder, Encoder

from omlxd.ipc.framing import Framer, FramingError, encode

R = TypeVar("R")

_RECEIVE_BYTES = 256 * 1024


class ProtocolError(Exception):
    """The peer sent bytes that are no frame, or a frame that is no message of this side."""


class TruncatedFrame(ProtocolError):
    """The peer ended in the middle of a frame: it died while it wrote."""


class ChannelClosed(ConnectionError):
    """The peer is gone, or this side was closed: what was to be sent was not."""


class BlockingChannel(Generic[R]):
    """One thread receives, any thread sends. Takes the socket over.

    `receives` is the union of message types this side may be sent.
    """

    def __init__(self, sock: socket.socket, receives: Any) -> None:
        sock.setblocking(True)
        # The descriptor came through exec; a program the worker starts must not keep it open.
        sock.set_inheritable(False)
        self._sock = sock
        self._decoder = Decoder(receives)
        self._framer = Framer()
        self._frames: deque[bytes] = deque()
        self._broken: ProtocolError | None = None  # raised once the frames before it are out
        self._encoder = Encoder()
        self._send_lock = threading.Lock()

    def receive(self) -> R | None:
        """The next message; None when the peer is gone. Raises ProtocolError."""
        while not self._frames:
            if self._broken is not None:
                raise self._broken
            try:
                data = self._sock.recv(_RECEIVE_BYTES)
            except OSError:  # reset by the peer, or closed by another thread of ours
                return None
            if not data:
                return None
            try:
                self._frames.extend(self._framer.feed(data))
            except FramingError as error:
                self._frames.extend(error.complete)
                self._broken = ProtocolError(str(error))
        return cast(R, _decode(self._decoder, self._frames.popleft()))

    def send(self, message: object) -> None:
        """Blocks while the peer does not read. Raises ChannelClosed, FramingError if too big."""
        with self._send_lock:
            frame = encode(self._encoder.encode(message))
            try:
                self._sock.sendall(frame)
            except OSError as error:
                raise ChannelClosed(
                    f"{type(message).__name__} not sent, the peer is gone: {error}"
                ) from error

    def close(self) -> None:
        """Wakes a thread that waits in `receive`; may be called twice, and from any thread."""
        with suppress(OSError):  # the peer was faster, or it is closed already
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class AsyncChannel(asyncio.Protocol):
    """The daemon's side, for one event loop; everything is called on it, in order.

    `on_close` is called exactly once, after the last message: with None when the peer is gone or
    after `close`, else with what went wrong.
    """

    def __init__(
        self,
        sock: socket.socket,
        receives: Any,
        *,
        on_message: Callable[[Any], None],
        on_close: Callable[[Exception | None], None],
    ) -> None:
        self._sock = sock
        self._decoder = Decoder(receives)
        self._encoder = Encoder()
        self._framer = Framer()
        self._on_message = on_message
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._stopped = False  # nothing more is delivered
        self._error: Exception | None = None

    @classmethod
    async def open(
        cls,
        sock: socket.socket,
        receives: Any,
        *,
        on_message: Callable[[Any], None],
        on_close: Callable[[Exception | None], None],
    ) -> AsyncChannel:
        """Takes the socket over. Sends at once; receives nothing before `start`."""
        sock.setblocking(False)
        channel = cls(sock.dup(), receives, on_message=on_message, on_close=on_close)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: channel, sock=sock)
        except BaseException:
            channel._sock.close()
            sock.close()
            raise
        return channel

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def start(self) -> None:
        """Callbacks may come from now on, none of them out of this call."""
        if self._transport is not None and self.is_open:
            self._transport.resume_reading()

    def send(self, message: object) -> None:
        """Never blocks: what the peer does not read yet is buffered.

        Raises ChannelClosed when the peer is known to be gone, FramingError if too big.
        """
        if self._transport is None or not self.is_open:
            raise ChannelClosed(f"{type(message).__name__} not sent, the channel is closed")
        self._transport.write(encode(self._encoder.encode(message)))

    def close(self) -> None:
        """Drops what is not sent and not delivered yet; `on_close` follows."""
        self._stopped = True
        if self._transport is not None:
            self._transport.abort()

    # ---------------------------------------------------------------- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        broken: Exception | None = None
        try:
            frames = self._framer.feed(data)
        except FramingError as error:
            frames, broken = error.complete, ProtocolError(str(error))
        for frame in frames:
            if self._stopped:  # closed by a callback
                return
            try:
                message = _decode(self._decoder, frame)
            except ProtocolError as error:
                broken = error
                break
            self._on_message(message)
        if broken is not None:
            self._error = broken
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._receive_rest()
        finally:
            self._sock.close()
            if self._framer.pending_bytes and not self._stopped:
                self._error = TruncatedFrame("the peer ended in the middle of a frame")
            gone = None if isinstance(exc, ConnectionError) else exc
            self._on_close(self._error or gone)

    def _receive_rest(self) -> None:
        # A failed write closes the transport at once, while the peer's last words, such as why a
        # load failed, may still be unread.
        while not self._stopped:
            try:
                data = self._sock.recv(_RECEIVE_BYTES)
            except OSError:  # nothing there, or reset
                return
            if not data:
                return
            self.data_received(data)


def _decode(decoder: Decoder[Any], frame: bytes) -> Any:
    try:
        return decoder.decode(frame)
    except MsgspecError as error:
        raise ProtocolError(f"a frame of {len(frame)} bytes is no message: {error}") from error
