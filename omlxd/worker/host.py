"""The worker process: the main thread takes frames in, the thread of its side sees to the rest.

A worker leaves by `os._exit`: at the end of a normal exit the interpreter would wait for, or abort
on, threads that are in the middle of an MLX call.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import NoReturn

from omlxd.errors import ModelUnavailable
from omlxd.ipc.channel import BlockingChannel, ChannelClosed, ProtocolError
from omlxd.ipc.messages import (
    PROTOCOL,
    CacheCommand,
    CacheDone,
    Events,
    Failed,
    Hello,
    Load,
    Stop,
    Submit,
    ToWorker,
)
from omlxd.worker.side import EXIT_BROKEN, EXIT_STOPPED, MakeSide, Side

# A step of a huge prefill may take longer than anyone should wait for a clean end.
_STOP_SECONDS = 10.0


def serve(
    descriptor: int,
    *,
    make_side: MakeSide,
    versions: Mapping[str, str],
) -> NoReturn:
    """Serve the daemon at the other end of a connected stream socket until it is told to stop.

    Ends the process: 0 told to stop, or the daemon is gone · 1 broken · 3 the load failed.
    """
    # Ctrl-C at the daemon's terminal reaches the whole process group; the daemon decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    channel: BlockingChannel[ToWorker] = BlockingChannel(socket.socket(fileno=descriptor), ToWorker)
    try:
        channel.send(Hello(os.getpid(), PROTOCOL, dict(versions)))
        load = _first_load(channel)
        if load is not None:
            _serve_model(channel, make_side(channel.send, load.load.kind), load)
    except ChannelClosed:
        _leave(EXIT_STOPPED)
    except ProtocolError:
        traceback.print_exc()
        _leave(EXIT_BROKEN)
    _leave(EXIT_STOPPED)


def _first_load(channel: BlockingChannel[ToWorker]) -> Load | None:
    """What is said before it is of no model; None = it is to stop."""
    while (message := channel.receive()) is not None:
        match message:
            case Load():
                return message
            case Stop():
                return None
            case Submit():
                name, reason = message.request.request_id, "this worker has no model yet"
                channel.send(Events([Failed(name, ModelUnavailable.code, reason)]))
            case CacheCommand():
                channel.send(CacheDone(message.command_id, 0, 0))  # nothing is kept
    return None


def _serve_model(channel: BlockingChannel[ToWorker], side: Side, load: Load) -> None:
    thread = threading.Thread(target=_run, args=(side,), name="side", daemon=True)
    thread.start()
    side.put(load)
    while (message := channel.receive()) is not None:
        side.put(message)
        if isinstance(message, Stop):
            thread.join(_STOP_SECONDS)
            return


def _run(side: Side) -> None:
    try:
        code = side.run()
    except ChannelClosed:  # the daemon is gone, there is nobody to tell
        code = EXIT_STOPPED
    except BaseException:
        traceback.print_exc()
        code = EXIT_BROKEN
    _leave(code)


def _leave(code: int) -> NoReturn:
    sys.stderr.flush()
    os._exit(code)
