"""The cold tier as the engine sees it: a folder behind threads of its own.

Rules this file keeps:

1. Every write and read is answered once, through `on_done`, and nothing raises into the caller: a
   disk that is gone, read-only or full is a reason in an answer.
2. Reads go first, as somebody waits for them, and one thread is always left for them.
3. While the store is degraded, writes are answered with the reason and the disk is left alone
   until `RETRY_S` has passed; then the next write or `probe` tries again. Reads are always tried:
   a full or read-only disk can still be read.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import mlx.core as mx

from omlxd.ipc.entry_format import BadEntry
from omlxd.kv.types import EntryKey
from omlxd.worker.cold_folder import ColdFolder, WriteReason, write_reason
from omlxd.worker.piece import Piece

RETRY_S = 30.0
TOUCH_EVERY_S = 60.0
MAX_TOUCHED = 100_000  # keys remembered as touched
_TOUCH_STEP_NS = 1000  # finer than any file system that forgets the order

NO_KEY = EntryKey(b"")

Op = Literal["write", "read", "touch", "remove", "probe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One answer: to each write, read and probe; to others only where they failed."""

    op: Op
    key: EntryKey = NO_KEY  # of a probe: none
    reason: str = ""  # empty = it went well; else a WriteReason, a BadReason or one of the queue's
    detail: str = ""
    piece: Piece | None = None  # of a read that went well
    nbytes: int = 0  # of the file that was written, of the piece that was read
    seconds: float = 0.0  # at the disk, not in the queue

    @property
    def ok(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Lost:
    """What `close` had no time to write, and threads that hang in the disk."""

    entries: int = 0
    nbytes: int = 0
    hung_threads: int = 0


@dataclass(frozen=True, slots=True)
class _Trouble:
    reason: WriteReason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    op: Op
    key: EntryKey = NO_KEY
    piece: Piece | None = None  # of a write that was let in
    mtime_ns: int = 0

    @property
    def nbytes(self) -> int:
        return self.piece.nbytes if self.piece is not None else 0


class ColdStore:
    """`on_done` is called on the I/O threads (at `close` on its caller's) and only enqueues.

    All methods are thread-safe; only `list` and `close` wait for the disk.
    """

    def __init__(
        self,
        folder: Path,
        *,
        on_done: Callable[[Done], None],
        min_free_bytes: int = 0,
        queue_bytes: int = 256 << 20,
        threads: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert threads >= 2, "one for reads, at least one for writes"
        self._folder, self._on_done, self._clock = ColdFolder(folder), on_done, clock
        self._queue_bytes, self._max_writing = queue_bytes, threads - 1
        self._changed = threading.Condition()  # guards all below
        self._min_free_bytes = min_free_bytes
        self._reads: deque[_Job] = deque()
        self._writes: deque[_Job] = deque()  # and what has to come after the write it follows
        self._writing: list[_Job] = []
        self._queued_bytes = 0
        self._touched: dict[EntryKey, float] = {}
        self._trouble: _Trouble | None = None
        self._retry_at = 0.0
        self._closed = self._stopped = False
        self._threads = [
            threading.Thread(target=self._work, name=f"cold-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def degraded(self) -> str:
        """Why nothing is written at present, for people; empty if all is well."""
        with self._changed:
            return str(self._trouble or "")

    @property
    def queued_bytes(self) -> int:
        """Bytes of pieces that were let in and are not on disk yet."""
        with self._changed:
            return self._queued_bytes

    def set_min_free(self, nbytes: int) -> None:
        """What writes leave free on the disk; a degraded store tries again at once."""
        with self._changed:
            if nbytes != self._min_free_bytes:
                self._min_free_bytes, self._retry_at = nbytes, 0.0

    def list(self) -> Iterator[tuple[EntryKey, int]]:
        """All entries and the bytes of their files, read in the caller's thread."""
        try:
            yield from self._folder.list()
        except OSError as error:  # what was found so far counts
            self._failed(error)

    def write(self, key: EntryKey, piece: Piece) -> None:
        """Write behind. Answered "queue full" if more than `queue_bytes` would wait."""
        with self._changed:
            if self._queued_bytes and self._queued_bytes + piece.nbytes > self._queue_bytes:
                self._add(self._writes, _Job("write", key))
            else:
                self._queued_bytes += piece.nbytes
                self._add(self._writes, _Job("write", key, piece))

    def read(self, key: EntryKey) -> None:
        """Load and check. A bad file is removed, and is a miss like one that is absent."""
        with self._changed:
            self._add(self._reads, _Job("read", key))

    def touch(self, keys: Sequence[EntryKey]) -> None:
        """Make these the newest files, the last key the newest of all: give them tail to head.

        So what is evicted by age goes tails first. A key is touched once a minute at most.
        """
        now, base_ns = self._clock(), time.time_ns()
        with self._changed:
            if len(self._touched) > MAX_TOUCHED:
                self._touched = {k: t for k, t in self._touched.items() if now - t < TOUCH_EVERY_S}
            for number, key in enumerate(keys):
                if now - self._touched.get(key, now - TOUCH_EVERY_S) >= TOUCH_EVERY_S:
                    self._touched[key] = now
                    mtime_ns = base_ns + number * _TOUCH_STEP_NS
                    self._add(self._writes, _Job("touch", key, mtime_ns=mtime_ns))

    def remove(self, keys: Sequence[EntryKey]) -> None:
        """Their files are of no more use."""
        with self._changed:
            for key in keys:
                self._add(self._writes, _Job("remove", key))

    def probe(self) -> None:
        """See whether a degraded store can write again; no answer where it is too early to ask."""
        with self._changed:
            if self._trouble and self._clock() >= self._retry_at:
                self._add(self._writes, _Job("probe"))

    def close(self, deadline_s: float) -> Lost:
        """Write what is queued for so long, answer the rest with "closed", end the threads."""
        end = time.monotonic() + deadline_s
        with self._changed:
            self._closed = True
            dropped = list(self._reads)
            self._reads.clear()
            self._changed.wait_for(lambda: not self._writes and not self._writing, deadline_s)
            lost = [job for job in (*self._writes, *self._writing) if job.piece is not None]
            dropped += self._writes
            self._writes.clear()
            self._stopped = True
            self._changed.notify_all()
        for job in dropped:
            self._on_done(Done(op=job.op, key=job.key, reason="closed"))
        for thread in self._threads:
            thread.join(max(0.1, end - time.monotonic()))
        hung = sum(thread.is_alive() for thread in self._threads)
        return Lost(len(lost), sum(job.nbytes for job in lost), hung)

    def _add(self, queue: deque[_Job], job: _Job) -> None:
        assert not self._closed, "the store is closed"
        queue.append(job)
        self._changed.notify()

    # ------------------------------------------------------------------ the I/O threads

    def _work(self) -> None:
        while (job := self._take()) is not None:
            done = self._do(job)
            with self._changed:
                if job.op != "read":
                    self._writing.remove(job)
                self._queued_bytes -= job.nbytes
                self._changed.notify_all()
            del job  # the piece goes now, not with the next job
            if done is not None:
                self._on_done(done)
        mx.synchronize()
        mx.clear_streams()

    def _take(self) -> _Job | None:
        with self._changed:
            while True:
                if self._reads:
                    return self._reads.popleft()
                if self._writes and len(self._writing) < self._max_writing:
                    self._writing.append(self._writes.popleft())
                    return self._writing[-1]
                if self._stopped:
                    return None
                self._changed.wait()

    def _do(self, job: _Job) -> Done | None:
        begin = time.perf_counter()
        try:
            done = _WORK[job.op](self, job)
        except Exception as error:  # an answer is owed, or somebody waits for ever
            done = Done(op=job.op, key=job.key, reason="io", detail=repr(error))
        return done and replace(done, seconds=time.perf_counter() - begin)

    def _read(self, job: _Job) -> Done:
        try:
            piece = self._folder.read(job.key)
        except BadEntry as error:
            return Done(op="read", key=job.key, reason=error.reason, detail=error.detail)
        return Done(op="read", key=job.key, piece=piece, nbytes=piece.nbytes)

    def _touch(self, job: _Job) -> Done | None:
        try:
            self._folder.touch(job.key, job.mtime_ns)
        except FileNotFoundError as error:
            return Done(op="touch", key=job.key, reason="absent", detail=str(error))
        except OSError as error:  # it only ages; writes say what is wrong with the disk
            return Done(op="touch", key=job.key, reason=write_reason(error), detail=str(error))
        return None

    def _remove(self, job: _Job) -> Done | None:
        try:
            self._folder.remove(job.key)
        except OSError as error:  # it is counted, and ages like any file
            return Done(op="remove", key=job.key, reason=write_reason(error), detail=str(error))
        return None

    def _write(self, job: _Job) -> Done:
        if job.op == "write" and job.piece is None:
            return Done(op="write", key=job.key, reason="queue full")
        with self._changed:
            trouble, min_free_bytes = self._trouble, self._min_free_bytes
            early = self._clock() < self._retry_at
        if trouble is not None and early:
            return Done(op=job.op, key=job.key, reason=trouble.reason, detail=trouble.detail)
        try:
            if job.piece is None:
                self._folder.check(min_free_bytes=min_free_bytes)
                nbytes = 0
            else:
                nbytes = self._folder.write(job.key, job.piece, min_free_bytes=min_free_bytes)
        except OSError as error:
            trouble = self._failed(error)
            return Done(op=job.op, key=job.key, reason=trouble.reason, detail=trouble.detail)
        with self._changed:
            self._trouble = None
        return Done(op=job.op, key=job.key, nbytes=nbytes)

    def _failed(self, error: OSError) -> _Trouble:
        trouble = _Trouble(write_reason(error), str(error))
        with self._changed:
            self._trouble, self._retry_at = trouble, self._clock() + RETRY_S
        return trouble


_WORK: dict[Op, Callable[[ColdStore, _Job], Done | None]] = {
    "read": ColdStore._read,
    "write": ColdStore._write,
    "probe": ColdStore._write,
    "touch": ColdStore._touch,
    "remove": ColdStore._remove,
}
