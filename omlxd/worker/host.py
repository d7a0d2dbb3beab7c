"""The worker process: the main thread takes frames in, the text thread sees to the rest.

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
from collections.abc import Callable, Mapping
from typing import NoReturn

from omlxd.ipc.channel import BlockingChannel, ChannelClosed, ProtocolError
from omlxd.ipc.messages import PROTOCOL, Hello, LoadSettings, Stop, ToWorker
from omlxd.worker.ports import EngineFactory
from omlxd.worker.text import EXIT_BROKEN, EXIT_STOPPED, TextSide
from omlxd.worker.text_model import TextModel

# A step of a huge prefill may take longer than anyone should wait for a clean end.
_STOP_SECONDS = 10.0


def serve(
    descriptor: int,
    *,
    engine_factory: EngineFactory,
    load_text: Callable[[LoadSettings], TextModel],
    versions: Mapping[str, str],
) -> NoReturn:
    """Serve the daemon at the other end of a connected stream socket until it is told to stop.

    Ends the process: 0 told to stop, or the daemon is gone · 1 broken · 3 the load failed.
    """
    # Ctrl-C at the daemon's terminal reaches the whole process group; the daemon decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    channel: BlockingChannel[ToWorker] = BlockingChannel(socket.socket(fileno=descriptor), ToWorker)
    text = TextSide(channel.send, engine_factory=engine_factory, load_text=load_text)
    text_thread = threading.Thread(target=_run_text, args=(text,), name="text", daemon=True)
    try:
        channel.send(Hello(os.getpid(), PROTOCOL, dict(versions)))
        text_thread.start()
        while (message := channel.receive()) is not None:
            text.put(message)
            if isinstance(message, Stop):
                text_thread.join(_STOP_SECONDS)
                break
    except ChannelClosed:
        _leave(EXIT_STOPPED)
    except ProtocolError:
        traceback.print_exc()
        _leave(EXIT_BROKEN)
    _leave(EXIT_STOPPED)


def _run_text(text: TextSide) -> None:
    try:
        code = text.run()
    except ChannelClosed:  # the daemon is gone, there is nobody to tell
        code = EXIT_STOPPED
    except BaseException:
        traceback.print_exc()
        code = EXIT_BROKEN
    _leave(code)


def _leave(code: int) -> NoReturn:
    sys.stderr.flush()
    os._exit(code)
