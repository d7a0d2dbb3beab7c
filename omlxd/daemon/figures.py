"""What was measured at earlier loads, kept in `state/figures.json` across restarts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from omlxd.daemon.catalog import Figures
from omlxd.daemon.files import write_private
from omlxd.ipc.messages import Loaded
from omlxd.observe import log
from omlxd.reconcile.state import ModelId


class FiguresStore:
    """Owns the file. A file that cannot be read or written costs estimates, nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.by_model: dict[ModelId, Figures] = {}
        try:
            self.by_model = msgspec.json.decode(path.read_bytes(), type=dict[str, Figures])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.get().warning("figures_not_read", path=str(path), error=str(error))

    def measured(self, model: ModelId, footprint: int, loaded: Loaded) -> bool:
        """Keep what a load showed; True if it says something new (by more than 1%)."""
        figures = Figures(
            overhead_bytes=max(0, footprint - loaded.weights_bytes),
            kv_bytes_per_token=loaded.kv_bytes_per_token,
        )
        before = self.by_model.get(model)
        if before is not None and _is_close(before, figures):
            return False
        self.by_model[model] = figures
        try:
            write_private(self._path, msgspec.json.encode(self.by_model))
        except OSError as error:
            log.get().warning("figures_not_saved", path=str(self._path), error=str(error))
        return True


def _is_close(a: Figures, b: Figures) -> bool:
    apart = abs(a.overhead_bytes - b.overhead_bytes)
    return (
        a.kv_bytes_per_token == b.kv_bytes_per_token
        and apart <= max(a.overhead_bytes, b.overhead_bytes) // 100
    )
