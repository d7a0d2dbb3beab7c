"""The real omlxctl as a child process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWN_VARIABLES = ("OMLX_HOME", "OMLX_API_KEY", "NO_COLOR")


@dataclass(frozen=True)
class Done:
    code: int | None
    out: str
    err: str


class Running:
    """One omlxctl that has not been waited for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        """The next line of its standard output; empty at the end."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def done(self, stdin: str = "") -> Done:
        given = None if self._process.stdin is None else stdin.encode()
        out, err = await self._process.communicate(given)
        return Done(self._process.returncode, (out or b"").decode(), err.decode())

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


class Ctl:
    """Runs omlxctl for one home."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @asynccontextmanager
    async def running(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        stdin: int = asyncio.subprocess.PIPE,
        stdout: int = asyncio.subprocess.PIPE,
    ) -> AsyncIterator[Running]:
        """Started, and killed at the end if it still runs."""
        inherited = {k: v for k, v in os.environ.items() if k not in OWN_VARIABLES}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "omlxctl"),
            *args,
            cwd=ROOT,
            env=inherited | {"OMLX_HOME": str(self.home)} | dict(env or {}),
            stdin=stdin,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
        )
        running = Running(process)
        try:
            yield running
        finally:
            await running.close()

    async def __call__(
        self, *args: str, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> Done:
        async with self.running(*args, env=env) as running:
            return await running.done(stdin)
