"""Reads entries and removes those that are not what was written. Blocking, a bit at a time."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omlxd.daemon.janitor import entry_files, remove
from omlxd.ipc.entry_format import ENTRY_SUFFIX, BadEntry, verified

BIT_S = 0.25


@dataclass(slots=True)
class Verified:
    """So far."""

    checked: int = 0
    bytes: int = 0
    bad: Counter[str] = field(default_factory=Counter)  # by reason
    removed: int = 0


class Verifier:
    """One run over a folder. A file that is gone when its turn comes is nothing wrong."""

    def __init__(
        self,
        folder: Path,
        *,
        only: Collection[str] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.so_far = Verified()
        self._files: Iterator[str] = entry_files(folder, only=only)
        self._clock = clock

    def go_on(self) -> bool:
        """Check files for a quarter of a second, at least one; False at the end."""
        until = self._clock() + BIT_S
        for path in self._files:
            self._check(path)
            if self._clock() >= until:
                return True
        return False

    def _check(self, path: str) -> None:
        so_far = self.so_far
        key = os.path.basename(path).removesuffix(ENTRY_SUFFIX)
        try:
            data = Path(path).read_bytes()
            so_far.bytes += len(data)
            verified(data, key, where=path)
        except FileNotFoundError:
            return
        except OSError:  # not the file's fault: it may be read again another time
            so_far.bad["io"] += 1
        except BadEntry as error:
            so_far.bad[error.reason] += 1
            so_far.removed += remove(path)
        so_far.checked += 1
