"""Which model each namespace of the cold tier is of, kept in `state/namespaces.json`.

Only a worker can work a namespace out, so what one reported is remembered: `omlxctl cache` names
models that are not loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from omlxd.daemon.files import write_private
from omlxd.observe import log
from omlxd.reconcile.state import ModelId


class NamespaceNames:
    """Owns the file. One that cannot be read or written costs names, nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.model_of: dict[str, ModelId] = {}
        try:
            self.model_of = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.get().warning("namespaces_not_read", path=str(path), error=str(error))

    def learn(self, reported: Mapping[str, ModelId]) -> None:
        """Remember what workers reported."""
        if not reported.items() <= self.model_of.items():
            self._replace(self.model_of | dict(reported))

    def forget(self, still: Collection[str]) -> None:
        """All but `still`: those on disk, and those in use."""
        if not self.model_of.keys() <= set(still):
            self._replace({name: its for name, its in self.model_of.items() if name in still})

    def _replace(self, fresh: dict[str, ModelId]) -> None:
        self.model_of = fresh
        try:
            write_private(self._path, msgspec.json.encode(fresh))
        except OSError as error:
            log.get().warning("namespaces_not_saved", path=str(self._path), error=str(error))

    def of_model(self, model: ModelId) -> frozenset[str]:
        return frozenset(name for name, its in self.model_of.items() if its == model)
