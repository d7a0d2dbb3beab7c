"""Looks after the worker processes: often while something runs or memory is short, else seldom.

Measures what the process tree takes, and lets the watchdog look for a worker that hangs.
"""

from __future__ import annotations

import asyncio
import os
import time

from omlxd.daemon.controller import Controller
from omlxd.daemon.memory import footprint
from omlxd.daemon.watchdog import Watchdog

BUSY_S = 2.0
IDLE_S = 15.0


async def probe_workers(controller: Controller, watchdog: Watchdog) -> None:
    """Until cancelled."""
    own = os.getpid()
    while True:
        pids = [own, *controller.fleet.pids()]
        sizes = await asyncio.to_thread(footprint, pids)
        controller.footprints_measured(sizes.pop(own, 0), sizes)
        watchdog.look(time.monotonic())
        is_busy = any(engine.is_busy for engine in controller.engines.values())
        is_short = controller.grants.pressure.room_bytes is not None
        await asyncio.sleep(BUSY_S if is_busy or is_short else IDLE_S)
