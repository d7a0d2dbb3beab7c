"""Measures what the process tree takes, often while something runs and seldom at rest."""

from __future__ import annotations

import asyncio
import os

from omlxd.daemon.controller import Controller
from omlxd.daemon.memory import footprint

BUSY_S = 2.0
IDLE_S = 15.0


async def probe_memory(controller: Controller) -> None:
    """Until cancelled."""
    own = os.getpid()
    while True:
        pids = [own, *controller.fleet.pids()]
        sizes = await asyncio.to_thread(footprint, pids)
        controller.footprints_measured(sizes.pop(own, 0), sizes)
        is_busy = any(engine.is_busy for engine in controller.engines.values())
        await asyncio.sleep(BUSY_S if is_busy else IDLE_S)
