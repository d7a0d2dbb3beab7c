"""A real worker process at the other end of a socket pair."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from omlxd.ipc.channel import BlockingChannel
from omlxd.ipc.messages import (
    Completed,
    Event,
    Events,
    Failed,
    FromWorker,
    GenerateRequest,
    LiveSettings,
    Load,
    Loaded,
    LoadSettings,
    Submit,
    TokenizerReady,
    ToWorker,
)

_TIMEOUT_S = 30.0


class Worker:
    """The daemon's view of one worker; every wait is bounded."""

    def __init__(self, process: subprocess.Popen[str], sock: socket.socket) -> None:
        self.process = process
        self.sock = sock
        self._channel: BlockingChannel[FromWorker] = BlockingChannel(sock, FromWorker)
        # After `setblocking` of the channel: a frame that never comes fails the test.
        sock.settimeout(_TIMEOUT_S)
        self._num_asked = 0

    def send(self, message: ToWorker) -> None:
        self._channel.send(message)

    def frame(self) -> FromWorker | None:
        return self._channel.receive()

    def load(self, folder: Path, live: LiveSettings | None = None) -> tuple[TokenizerReady, Loaded]:
        settings = LoadSettings(model_id=folder.name, path=str(folder), kind="llm")
        self.send(Load(settings, live or LiveSettings()))
        ready, loaded = self.frame(), self.frame()
        assert isinstance(ready, TokenizerReady), ready
        assert isinstance(loaded, Loaded), loaded
        return ready, loaded

    def submit(self, request_id: str = "r", **fields: Any) -> None:
        self.send(Submit(GenerateRequest(request_id=request_id, model="m", **fields)))

    def events(self) -> list[Event]:
        """The next frame of events; figures in between are left out."""
        while not isinstance(frame := self.frame(), Events):
            assert frame is not None, "the worker is gone"
        return frame.events

    def run(self, *request_ids: str) -> list[Event]:
        """All events until each of the requests has come to its end."""
        events: list[Event] = []
        ended: set[str] = set()
        while ended != set(request_ids):
            new = self.events()
            events += new
            ended |= {event.request_id for event in new if isinstance(event, Completed | Failed)}
        return events

    def ask(self, **fields: Any) -> list[Event]:
        """All events of one new request; ids are not used again in the life of a worker."""
        self._num_asked += 1
        request_id = f"ask-{self._num_asked}"
        self.submit(request_id, **fields)
        return [event for event in self.run(request_id) if event.request_id == request_id]

    def exit_code(self) -> int:
        return self.process.wait(_TIMEOUT_S)


@contextmanager
def started_worker(*, stderr: IO[str] | int | None = None) -> Iterator[Worker]:
    """`python -m omlxd.worker`, ended at the end if it still runs."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "omlxd.worker", "--fd", str(theirs.fileno())]
    process = subprocess.Popen(
        command, pass_fds=[theirs.fileno()], stderr=stderr, text=True, env=dict(os.environ)
    )
    theirs.close()
    try:
        yield Worker(process, ours)
    finally:
        ours.close()
        process.kill()
        process.wait(_TIMEOUT_S)
        if process.stderr is not None:
            process.stderr.close()
