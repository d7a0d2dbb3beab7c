"""What other threads ask of the engine's."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omlxd.ipc.messages import CacheCommand, LiveSettings
from omlxd.worker.ports import RowJob


@dataclass(frozen=True, slots=True)
class Submit:
    rows: Sequence[RowJob]


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: str
    index: int | None


@dataclass(frozen=True, slots=True)
class Configure:
    live: LiveSettings


@dataclass(frozen=True, slots=True)
class Later:
    """Another thread has this to be done on the engine's."""

    act: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = Submit | Cancel | Configure | CacheCommand | Later | Stop
Inbox = queue.SimpleQueue[Command]
