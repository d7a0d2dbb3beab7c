"""Both channels over real socket pairs, with threads and with event loops."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvloop
from msgspec.msgpack import Encoder

from omlxd.ipc.channel import (
    AsyncChannel,
    BlockingChannel,
    ChannelClosed,
    ProtocolError,
    TruncatedFrame,
)
from omlxd.ipc.framing import encode
from omlxd.ipc.messages import (
    Accepted,
    Cancel,
    Delta,
    Events,
    FromWorker,
    GenerateRequest,
    Hello,
    LoadFailed,
    Stop,
    Submit,
    ToWorker,
)


def frame(message: object) -> bytes:
    return encode(Encoder().encode(message))


class Inbox:
    """What an AsyncChannel reported."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def on_close(self, error: Exception | None) -> None:
        self.closed.set_result(error)  # a second call would raise


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def worker(pair: tuple[socket.socket, socket.socket]) -> BlockingChannel[ToWorker]:
    return BlockingChannel(pair[1], ToWorker)


@pytest.fixture
async def opened(
    pair: tuple[socket.socket, socket.socket],
) -> AsyncIterator[tuple[AsyncChannel, Inbox]]:
    inbox = Inbox()
    channel = await AsyncChannel.open(
        pair[0], FromWorker, on_message=inbox.messages.append, on_close=inbox.on_close
    )
    yield channel, inbox
    channel.close()
    await inbox.closed


# ------------------------------------------------------------------ blocking


def test_blocking_receives_typed_messages_then_none(
    pair: tuple[socket.socket, socket.socket], worker: BlockingChannel[ToWorker]
) -> None:
    """Messages come out as their own types, and the end of the stream as None, again and again."""
    request = GenerateRequest(request_id="r1", model="m", prompt=[1, 2])
    pair[0].sendall(frame(Submit(request)) + frame(Cancel("r1")))
    pair[0].close()
    assert worker.receive() == Submit(request)
    assert worker.receive() == Cancel("r1")
    assert worker.receive() is None
    assert worker.receive() is None


def test_blocking_delivers_good_frames_before_the_error(
    pair: tuple[socket.socket, socket.socket], worker: BlockingChannel[ToWorker]
) -> None:
    """A bad length costs nothing that came whole before it."""
    pair[0].sendall(frame(Stop()) + b"\0\0\0\0")
    assert worker.receive() == Stop()
    with pytest.raises(ProtocolError, match="no bytes"):
        worker.receive()


def test_blocking_refuses_a_message_of_the_other_side(
    pair: tuple[socket.socket, socket.socket], worker: BlockingChannel[ToWorker]
) -> None:
    """A frame that is valid msgpack but not for this side is a protocol error."""
    pair[0].sendall(frame(Hello(pid=1, protocol=1)))
    with pytest.raises(ProtocolError, match="Hello"):
        worker.receive()


def test_blocking_send_is_safe_from_many_threads(
    pair: tuple[socket.socket, socket.socket], worker: BlockingChannel[ToWorker]
) -> None:
    """Frames of ten threads that send at once arrive whole, each thread's in order."""
    reader: BlockingChannel[FromWorker] = BlockingChannel(pair[0], FromWorker)

    def send(index: int) -> None:
        for step in range(100):
            worker.send(Events([Delta(f"r{index}", step, "x" * (step * 37 % 5000))]))

    threads = [threading.Thread(target=send, args=(index,)) for index in range(10)]
    for thread in threads:
        thread.start()
    steps: dict[str, list[int]] = {f"r{index}": [] for index in range(10)}
    for _ in range(1000):
        message = reader.receive()
        assert isinstance(message, Events)
        delta = message.events[0]
        assert isinstance(delta, Delta)
        steps[delta.request_id].append(delta.index)
    for thread in threads:
        thread.join()
    assert steps == {f"r{index}": list(range(100)) for index in range(10)}


def test_blocking_send_to_a_gone_peer_raises(
    pair: tuple[socket.socket, socket.socket], worker: BlockingChannel[ToWorker]
) -> None:
    """What cannot be delivered is an error that names it."""
    pair[0].close()
    with pytest.raises(ChannelClosed, match="Hello not sent"):
        worker.send(Hello(pid=1, protocol=1))


def test_close_wakes_a_waiting_receiver(worker: BlockingChannel[ToWorker]) -> None:
    """A thread that waits for the daemon ends when another thread closes the channel."""
    ends: list[object] = []
    thread = threading.Thread(target=lambda: ends.append(worker.receive()))
    thread.start()
    worker.close()
    thread.join(timeout=30)
    assert ends == [None]
    worker.close()


def test_the_workers_descriptor_is_not_inherited_further(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """A program that a worker starts cannot keep the channel open."""
    pair[1].set_inheritable(True)
    BlockingChannel(pair[1], ToWorker)
    assert not pair[1].get_inheritable()


# ------------------------------------------------------------------ asyncio


async def test_async_nothing_is_delivered_before_start(
    pair: tuple[socket.socket, socket.socket], opened: tuple[AsyncChannel, Inbox]
) -> None:
    """What the peer said early waits for `start`, and then comes in order before the end."""
    channel, inbox = opened
    messages = [Hello(pid=1, protocol=1), Events([Accepted("r", 3)])]
    pair[1].sendall(b"".join(map(frame, messages)))
    pair[1].close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert inbox.messages == []
    channel.start()
    assert await inbox.closed is None
    assert inbox.messages == messages
    assert not channel.is_open


async def test_async_send_never_blocks_on_a_slow_peer(
    pair: tuple[socket.socket, socket.socket], opened: tuple[AsyncChannel, Inbox]
) -> None:
    """Far more than the kernel's buffer is taken at once and arrives when the peer reads."""
    channel, _ = opened
    big = GenerateRequest(request_id="r", model="m", prompt="x" * 4_000_000)
    channel.send(Submit(big))
    channel.send(Stop())
    reader: BlockingChannel[ToWorker] = BlockingChannel(pair[1], ToWorker)
    assert await asyncio.to_thread(reader.receive) == Submit(big)
    assert await asyncio.to_thread(reader.receive) == Stop()


async def test_async_reports_why_a_frame_closed_it(
    pair: tuple[socket.socket, socket.socket], opened: tuple[AsyncChannel, Inbox]
) -> None:
    """Good messages before a frame that does not decode arrive; nothing after it does."""
    channel, inbox = opened
    hello = Hello(pid=1, protocol=1)
    pair[1].sendall(frame(hello) + encode(b"\xc1garbage") + frame(hello))
    channel.start()
    error = await inbox.closed
    assert isinstance(error, ProtocolError)
    assert "is no message" in str(error)
    assert inbox.messages == [hello]
    with pytest.raises(ChannelClosed, match="Stop not sent"):
        channel.send(Stop())


async def test_async_reports_a_broken_length_after_what_came_before(
    pair: tuple[socket.socket, socket.socket], opened: tuple[AsyncChannel, Inbox]
) -> None:
    """The frames before an impossible length are delivered, then the channel closes."""
    channel, inbox = opened
    hello = Hello(pid=1, protocol=1)
    pair[1].sendall(frame(hello) + b"\xff\xff\xff\xff")
    channel.start()
    error = await inbox.closed
    assert isinstance(error, ProtocolError)
    assert "4294967295" in str(error)
    assert inbox.messages == [hello]


async def test_async_reports_an_end_in_the_middle_of_a_frame(
    pair: tuple[socket.socket, socket.socket], opened: tuple[AsyncChannel, Inbox]
) -> None:
    """A peer that died while it wrote is told from one that ended properly."""
    channel, inbox = opened
    pair[1].sendall(frame(Hello(pid=1, protocol=1))[:-1])
    pair[1].close()
    channel.start()
    assert isinstance(await inbox.closed, TruncatedFrame)
    assert inbox.messages == []


async def test_async_last_words_survive_a_failed_write(
    pair: tuple[socket.socket, socket.socket], opened: tuple[AsyncChannel, Inbox]
) -> None:
    """What a peer said before it went is delivered even if a send finds out first."""
    channel, inbox = opened
    last = LoadFailed("no such file", permanent=True)
    pair[1].sendall(frame(last))
    pair[1].close()
    channel.send(Stop())  # fails inside the transport, before anything was read
    assert await inbox.closed is None
    assert inbox.messages == [last]


async def test_async_close_by_a_callback_stops_delivery(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """Once closed, the rest of what was received is not delivered."""
    inbox = Inbox()
    got: list[Any] = []

    def on_message(message: Any) -> None:
        got.append(message)
        channel.close()

    channel = await AsyncChannel.open(
        pair[0], FromWorker, on_message=on_message, on_close=inbox.on_close
    )
    pair[1].sendall(frame(Hello(pid=1, protocol=1)) * 3)
    channel.start()
    assert await inbox.closed is None
    assert len(got) == 1


def test_async_channel_works_on_uvloop(pair: tuple[socket.socket, socket.socket]) -> None:
    """The daemon's event loop carries the same channel: both directions, last words, the end."""

    async def run() -> tuple[list[Any], Exception | None]:
        inbox = Inbox()
        channel = await AsyncChannel.open(
            pair[0], FromWorker, on_message=inbox.messages.append, on_close=inbox.on_close
        )
        channel.send(Stop())
        peer: BlockingChannel[ToWorker] = BlockingChannel(pair[1], ToWorker)
        assert await asyncio.to_thread(peer.receive) == Stop()
        peer.send(Hello(pid=7, protocol=1))
        peer.send(Events([Accepted("r", 1)]))
        peer.close()
        channel.start()
        return inbox.messages, await inbox.closed

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        messages, error = runner.run(run())
    assert messages == [Hello(pid=7, protocol=1), Events([Accepted("r", 1)])]
    assert error is None
