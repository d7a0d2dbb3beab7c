"""A clock that moves when the test says so; implements `omlxd.api.stream.Clock`."""

from __future__ import annotations

import asyncio


class ManualClock:
    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        self._slept = asyncio.Condition()

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.Event()
        async with self._slept:
            self._sleepers.append((self._now + seconds, wake))
            self._slept.notify_all()
        await wake.wait()

    async def asleep(self) -> None:
        """Returns when somebody sleeps."""
        async with self._slept:
            await self._slept.wait_for(lambda: bool(self._sleepers))

    async def advance(self, seconds: float) -> None:
        """Waits for a sleeper, then moves on and wakes those whose time has come."""
        await self.asleep()
        self._now += seconds
        due = [sleeper for sleeper in self._sleepers if sleeper[0] <= self._now]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > self._now]
        for _, wake in due:
            wake.set()
