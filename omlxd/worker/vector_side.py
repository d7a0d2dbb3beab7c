"""The side of a worker that serves vectors and scores: one thread for all of it.

Inputs of all waiting requests go through the model together, in batches of like length; between
two batches it looks at what came in.
"""

from __future__ import annotations

import queue
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omlxd.errors import EngineFailed, ModelUnavailable, OmlxError, QueueFull, RequestInvalid
from omlxd.ipc.messages import (
    Accepted,
    CacheCommand,
    CacheDone,
    Cancel,
    Completed,
    Configure,
    Event,
    Events,
    Failed,
    FromWorker,
    GenerateRequest,
    LiveSettings,
    Load,
    Loaded,
    LoadFailed,
    Request,
    RowStats,
    Stats,
    Stop,
    Submit,
    TokenizerReady,
    ToWorker,
    Usage,
)
from omlxd.worker.ports import LoadError
from omlxd.worker.side import EXIT_LOAD_FAILED, EXIT_STOPPED
from omlxd.worker.vector_batch import pick
from omlxd.worker.vector_ports import LoadVectorModel, Row, VectorModel, VectorRequest

BATCH_TOKENS = 8192  # padded
STATS_EVERY_S = 1.0
REST_AFTER_S = 0.25


@dataclass(slots=True)
class _Open:
    request: VectorRequest
    arrived_at: float
    num_tokens: int
    num_left: int  # inputs
    begun_at: float | None = None


@dataclass(slots=True)
class _Waiting:
    of: _Open
    index: int
    row: Row


class Device:
    """What MLX is asked for beside the model; given in by the process's main module."""

    def __init__(
        self,
        *,
        memory: Callable[[], tuple[int, int]],
        limit: Callable[[int, int], None],
        release: Callable[[], None],
    ) -> None:
        self.memory = memory  # → bytes in use, bytes kept
        self.limit = limit  # (share, weights) in bytes
        self.release = release  # give back what is kept


class VectorSide:
    """`put` only enqueues, from any thread; `run` is the thread's body."""

    def __init__(
        self,
        send: Callable[[FromWorker], None],
        *,
        load_model: LoadVectorModel,
        device: Device,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._load_model, self._device, self._clock = send, load_model, device, clock
        self._inbox: queue.SimpleQueue[ToWorker] = queue.SimpleQueue()
        self._live = LiveSettings()
        self._model: VectorModel | None = None
        self._name = ""
        self._open: dict[str, _Open] = {}
        self._waiting: deque[_Waiting] = deque()
        self._stats_at = 0.0
        self._is_at_rest = True

    def put(self, message: ToWorker) -> None:
        self._inbox.put(message)

    def run(self) -> int:
        """Until the daemon says stop; returns the exit code."""
        while True:
            if not self._waiting:
                code = self._handle(self._next())
                if code is not None:
                    return code
            while not self._inbox.empty():
                code = self._handle(self._inbox.get())
                if code is not None:
                    return code
            if self._waiting:
                self._step()

    def _next(self) -> ToWorker:
        """Wait for a frame; what is kept of MLX's memory goes back when none comes for a while."""
        try:
            return self._inbox.get(timeout=None if self._is_at_rest else REST_AFTER_S)
        except queue.Empty:
            self._is_at_rest = True
            self._device.release()
            self._report()
            return self._inbox.get()

    # ------------------------------------------------------------------ frames

    def _handle(self, message: ToWorker) -> int | None:
        """The exit code, if this is the end."""
        match message:
            case Load():
                return self._load(message)
            case Stop():
                return EXIT_STOPPED
            case Configure():
                self._live = message.live
                self._limit()
            case Submit():
                self._submit(message.request)
            case Cancel():
                if self._open.pop(message.request_id, None) is not None:
                    self._drop(message.request_id)
            case CacheCommand():
                self._send(CacheDone(message.command_id, 0, 0))  # nothing is kept
        return None

    def _load(self, message: Load) -> int | None:
        assert self._model is None, "a worker loads one model in its life"
        began = self._clock()
        self._live, self._name = message.live, message.load.model_id
        try:
            model = self._model = self._load_model(message.load)
        except LoadError as error:
            self._send(LoadFailed(str(error), error.permanent))
            return EXIT_LOAD_FAILED
        self._limit()
        self._send(TokenizerReady(model.max_context))
        self._send(
            Loaded(
                duration_s=self._clock() - began,
                weights_bytes=model.weights_bytes,
                max_context=model.max_context,
                batches=True,
                prefix_reuse_reason="an input is computed at once",
            )
        )
        return None

    def _limit(self) -> None:
        if self._model is not None:
            self._device.limit(self._live.memory_share_bytes, self._model.weights_bytes)

    # ------------------------------------------------------------------ requests

    def _submit(self, request: Request) -> None:
        name = request.request_id
        if isinstance(request, GenerateRequest):
            error = RequestInvalid(f"{self._name} does not write text", param="model")
            self._tell([_failed(name, error)])
            return
        try:
            rows = self._rows(request)
        except OmlxError as refusal:
            self._tell([_failed(name, refusal)])
            return
        total = sum(map(len, rows))
        opened = _Open(request, self._clock(), total, len(rows))
        self._open[name] = opened
        self._waiting += [_Waiting(opened, index, row) for index, row in enumerate(rows)]
        self._tell([Accepted(name, total)])

    def _rows(self, request: VectorRequest) -> list[Row]:
        if self._model is None:
            raise ModelUnavailable("this worker has no model yet; load one first")
        limit = self._live.max_queue
        if len(self._open) >= limit:
            raise QueueFull.of(self._name, waiting=len(self._open), limit=limit)
        return self._model.rows(request)

    def _drop(self, name: str) -> None:
        self._waiting = deque(each for each in self._waiting if each.of.request.request_id != name)

    def _step(self) -> None:
        """One batch through the model."""
        assert self._model is not None
        self._is_at_rest = False
        waiting = list(self._waiting)
        chosen = pick([len(each.row) for each in waiting], most_tokens=BATCH_TOKENS)
        batch = [waiting[place] for place in chosen]
        taken = set(chosen)
        self._waiting = deque(each for place, each in enumerate(waiting) if place not in taken)
        for each in batch:
            if each.of.begun_at is None:
                each.of.begun_at = self._clock()
        try:
            results = self._model.compute([each.row for each in batch])
        except Exception as error:  # whatever MLX or the model's code raises
            traceback.print_exception(error, file=sys.stderr)
            self._fail(batch, EngineFailed(f"{self._name} broke on these inputs: {error!r}"))
            return
        answered = zip(batch, results, strict=True)
        self._tell([event for each, values in answered for event in self._done(each, values)])
        if self._clock() - self._stats_at >= STATS_EVERY_S:
            self._report()

    def _done(self, each: _Waiting, values: list[float]) -> list[Event]:
        assert self._model is not None
        request = each.of.request
        name = request.request_id
        if name not in self._open:
            return []  # it failed with an input before this one
        try:
            events: list[Event] = [self._model.answer(request, each.index, values)]
        except OmlxError as error:
            del self._open[name]
            self._drop(name)
            return [_failed(name, error)]
        each.of.num_left -= 1
        if each.of.num_left == 0:
            del self._open[name]
            begun = each.of.arrived_at if each.of.begun_at is None else each.of.begun_at
            tokens = each.of.num_tokens
            usage = Usage(prompt_tokens=tokens, computed=tokens)
            queue_ms = (begun - each.of.arrived_at) * 1000
            events.append(Completed(name, usage, queue_ms=queue_ms))
        return events

    def _fail(self, batch: Sequence[_Waiting], error: OmlxError) -> None:
        for name in {each.of.request.request_id: None for each in batch}:
            if self._open.pop(name, None) is not None:
                self._drop(name)
                self._tell([_failed(name, error)])

    # ------------------------------------------------------------------ telling

    def _tell(self, events: list[Event]) -> None:
        if events:
            self._send(Events(events))

    def _report(self) -> None:
        self._stats_at = self._clock()
        active, kept = self._device.memory()
        rows = [
            RowStats(name, "prefill", each.num_tokens, 0, 0) for name, each in self._open.items()
        ]
        self._send(
            Stats(running=len(rows), waiting=0, active_bytes=active, cache_bytes=kept, rows=rows)
        )


def _failed(name: str, error: OmlxError) -> Failed:
    return Failed(name, error.code, error.message, error.param, retry_after_s=error.retry_after_s)
