"""Keeps the discovery of model folders current; the scans run off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from omlxd.models.card import Discovery
from omlxd.models.discovery import scan
from omlxd.models.inputs import ScanInputs


class Scanner:
    """Owns `discovery`. `on_scanned` is called on the event loop after every scan."""

    def __init__(self, on_scanned: Callable[[], None]) -> None:
        self.discovery = Discovery()
        self._on_scanned = on_scanned
        self._inputs: ScanInputs | None = None
        self._wake = asyncio.Event()

    def want(self, inputs: ScanInputs) -> None:
        """Scan for this spec, unless that was done already."""
        if inputs != self._inputs:
            self._inputs = inputs
            self._wake.set()

    def look_again(self) -> None:
        """Something in the folders may have changed."""
        self._wake.set()

    @property
    def folders(self) -> tuple[Path, ...]:
        return self._inputs.folders if self._inputs else ()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            inputs = self._inputs
            if inputs is None:
                continue
            self.discovery = await asyncio.to_thread(
                scan,
                inputs.folders,
                inputs.declared,
                kinds=inputs.kinds,
                trusted=inputs.trusted,
                previous=self.discovery,
            )
            self._on_scanned()
