"""A cold store in a folder of its own, with all that it answers and a clock that is set by hand."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import mlx.core as mx
import pytest

from omlxd.kv.types import EntryKey
from omlxd.worker.cold_store import NO_KEY, ColdStore, Done, Lost, Op
from omlxd.worker.piece import Piece

WAIT_S = 20.0
PIECE_BYTES = 4 * 1024


def key(number: int) -> EntryKey:
    """Neighbours lie in different subfolders."""
    return EntryKey(bytes([number % 256]) + number.to_bytes(31, "little"))


def piece(value: float = 0.0, kib: int = 4) -> Piece:
    arrays = (mx.full((kib, 1, 16, 16), value),)
    mx.eval(arrays)
    return Piece("kv", 16, arrays)


class ColdRig:
    """A context manager: the store, closed at its end."""

    def __init__(
        self, folder: Path, *, min_free_bytes: int = 0, queue_bytes: int = 1 << 20
    ) -> None:
        self.folder = folder
        self.now = 1000.0
        self.answers: list[Done] = []
        self.answered_by: set[str] = set()
        self.lost: Lost | None = None
        self._changed = threading.Condition()
        self.store = ColdStore(
            folder,
            on_done=self._on_done,
            min_free_bytes=min_free_bytes,
            queue_bytes=queue_bytes,
            clock=lambda: self.now,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.lost is None:
            self.close()
        if kind is None:
            assert self.lost == Lost()

    def close(self, deadline_s: float = WAIT_S) -> Lost:
        self.lost = self.store.close(deadline_s)
        return self.lost

    def wait_for(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_S), self.answers

    def count(self, op: Op) -> int:
        return sum(done.op == op for done in self.answers)

    def write(self, number: int, what: Piece | None = None) -> Done:
        """Write and wait for the answer."""
        name = key(number)
        return self._ask("write", name, lambda: self.store.write(name, what or piece(number)))

    def read(self, number: int) -> Done:
        return self._ask("read", key(number), lambda: self.store.read(key(number)))

    def probe(self) -> Done:
        return self._ask("probe", NO_KEY, self.store.probe)

    def path(self, number: int) -> Path:
        name = key(number).hex()
        return self.folder / name[:2] / f"{name}.safetensors"

    def _ask(self, op: Op, key: EntryKey, ask: Callable[[], None]) -> Done:
        def answers() -> list[Done]:
            return [done for done in self.answers if (done.op, done.key) == (op, key)]

        before = len(answers())
        ask()
        self.wait_for(lambda: len(answers()) > before)
        return answers()[-1]

    def _on_done(self, done: Done) -> None:
        with self._changed:
            self.answers.append(done)
            self.answered_by.add(threading.current_thread().name)
            self._changed.notify_all()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own in RAM; skips the test where mounting one is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
