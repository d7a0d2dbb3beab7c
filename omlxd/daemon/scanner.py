"""Keeps the discovery of model folders current; the scans run off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from omlxd.daemon.files import model_folders, resolve_path
from omlxd.ipc.messages import Kind
from omlxd.models.card import Discovery
from omlxd.models.discovery import scan
from omlxd.spec.model import Spec


@dataclass(frozen=True, slots=True)
class ScanInputs:
    """What a scan needs of the spec. Equal = the folders need no new look for its sake."""

    folders: tuple[Path, ...] = ()
    declared: Mapping[str, Path | None] = field(default_factory=dict)
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    trusted: frozenset[str] = frozenset()


def scan_inputs(home: Path, spec: Spec) -> ScanInputs:
    """`trust_remote_code` and `kind` of `[defaults]` count for declared models only."""
    models = spec.models.items()
    return ScanInputs(
        folders=model_folders(home, spec),
        declared={n: None if m.path is None else resolve_path(home, m.path) for n, m in models},
        kinds={name: model.kind for name, model in models if model.kind is not None},
        trusted=frozenset(name for name, model in models if model.trust_remote_code),
    )


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
