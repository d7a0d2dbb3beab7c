"""The side that serves vectors: what it is told, and what it tells."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TypeVar

import pytest

from omlxd.errors import EngineFailed, RequestInvalid
from omlxd.ipc.messages import (
    Accepted,
    CacheCommand,
    CacheDone,
    Cancel,
    Completed,
    Event,
    Events,
    Failed,
    FromWorker,
    GenerateRequest,
    LiveSettings,
    Load,
    Loaded,
    LoadFailed,
    LoadSettings,
    Stats,
    Stop,
    Submit,
    TokenizerReady,
)
from omlxd.ipc.vectors import EmbedRequest, Score, Vector
from omlxd.worker.ports import LoadError
from omlxd.worker.side import EXIT_LOAD_FAILED, EXIT_STOPPED
from omlxd.worker.vector_ports import Row, VectorModel, VectorRequest
from omlxd.worker.vector_side import Device, VectorSide

T = TypeVar("T")
LOAD = LoadSettings(model_id="m", path="/m", kind="embedding")


class Lengths:
    """Each input's vector is its length; computing waits until the test lets it."""

    weights_bytes = 7
    max_context = 9

    def __init__(self) -> None:
        self.batches: SimpleQueue[int] = SimpleQueue()
        self.may_compute = threading.Semaphore(0)

    def rows(self, request: VectorRequest) -> list[Row]:
        assert isinstance(request, EmbedRequest)
        if "bad" in request.inputs:
            raise RequestInvalid("bad", param="input")
        return [[0] * len(value) for value in request.inputs]

    def compute(self, rows: Sequence[Row]) -> list[list[float]]:
        self.batches.put(len(rows))
        self.may_compute.acquire()
        if any(len(row) == 66 for row in rows):
            raise RuntimeError("boom")
        return [[float(len(row))] for row in rows]

    def answer(self, request: VectorRequest, index: int, values: list[float]) -> Vector | Score:
        if values == [13.0]:
            raise EngineFailed("no number")
        return Vector(request.request_id, index, bytes([int(values[0])]))


class Rig:
    """A side with its thread, and what it has sent."""

    def __init__(self, model: VectorModel | LoadError, *, max_queue: int = 256) -> None:
        self.sent: SimpleQueue[FromWorker] = SimpleQueue()
        self.limits: list[tuple[int, int]] = []

        def load(_settings: LoadSettings) -> VectorModel:
            if isinstance(model, LoadError):
                raise model
            return model

        device = Device(
            memory=lambda: (3, 4),
            limit=lambda share, weights: self.limits.append((share, weights)),
            release=lambda: None,
        )
        self.side = VectorSide(self.sent.put, load_model=load, device=device)
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        live = LiveSettings(max_queue=max_queue, memory_share_bytes=11)
        self.side.put(Load(LOAD, live))

    def _run(self) -> None:
        self.code = self.side.run()

    def submit(self, name: str, *inputs: str) -> None:
        self.side.put(Submit(EmbedRequest(request_id=name, model="m", inputs=[*inputs])))

    def next(self, kind: type[T]) -> T:
        """The next frame of this kind."""
        while True:
            frame = self.sent.get(timeout=20)
            if isinstance(frame, kind):
                return frame

    def events(self, last: type[Event]) -> list[Event]:
        """Events up to one of this type."""
        found: list[Event] = []
        while not any(isinstance(event, last) for event in found):
            found += self.next(Events).events
        return found

    def stop(self) -> int | None:
        self.side.put(Stop())
        self.thread.join(20)
        return self.code


@pytest.fixture
def model() -> Lengths:
    return Lengths()


def test_a_load_and_a_stop(model: Lengths) -> None:
    """It says what it can take, and what it weighs; its share of memory is kept to."""
    rig = Rig(model)
    assert rig.next(TokenizerReady) == TokenizerReady(9)
    loaded = rig.next(Loaded)
    assert (loaded.weights_bytes, loaded.max_context, loaded.batches) == (7, 9, True)
    assert rig.limits == [(11, 7)]
    rig.side.put(CacheCommand(5, "clear"))
    assert rig.next(CacheDone) == CacheDone(5, 0, 0)
    assert rig.stop() == EXIT_STOPPED


def test_a_load_that_fails() -> None:
    """Is told, and ends the process."""
    rig = Rig(LoadError("no", permanent=True))
    assert rig.next(LoadFailed) == LoadFailed("no", True)
    rig.thread.join(20)
    assert rig.code == EXIT_LOAD_FAILED


def test_a_request_is_answered(model: Lengths) -> None:
    """Accepted with its tokens, a vector for each input, then its usage; then it rests."""
    rig = Rig(model)
    model.may_compute.release()
    rig.submit("a", "x", "yyy")
    accepted, *rest = rig.events(Completed)
    assert accepted == Accepted("a", 4)
    assert rest[:2] == [Vector("a", 0, b"\x01"), Vector("a", 1, b"\x03")]
    assert isinstance(rest[2], Completed)
    assert rest[2].usage.prompt_tokens == 4
    stats = rig.next(Stats)
    while stats.running:
        stats = rig.next(Stats)
    assert (stats.active_bytes, stats.cache_bytes) == (3, 4)
    rig.stop()


def test_requests_that_wait_are_computed_together(model: Lengths) -> None:
    """What came while a batch ran is one batch."""
    rig = Rig(model)
    rig.submit("a", "x")
    assert model.batches.get(timeout=20) == 1
    for name in "bcd":
        rig.submit(name, "x", "y")
    model.may_compute.release(2)
    assert model.batches.get(timeout=20) == 6
    done = 0
    while done < 4:
        done += sum(isinstance(e, Completed) for e in rig.events(Completed))
    rig.stop()


def test_what_is_cancelled_is_not_computed(model: Lengths) -> None:
    """Nor answered."""
    rig = Rig(model)
    rig.submit("a", "x")
    model.batches.get(timeout=20)
    rig.submit("b", "y")
    rig.submit("c", "z")
    rig.side.put(Cancel("b"))
    model.may_compute.release(2)
    assert model.batches.get(timeout=20) == 1
    events = rig.events(Completed)
    while Completed not in {type(e) for e in events if e.request_id == "c"}:
        events += rig.next(Events).events
    assert not any(isinstance(e, Vector) and e.request_id == "b" for e in events)
    rig.stop()


@pytest.mark.parametrize(
    ("inputs", "code", "reason"),
    [
        (["bad"], RequestInvalid.code, "bad"),
        (["x" * 13, "y"], EngineFailed.code, "no number"),
        (["x" * 66], EngineFailed.code, "boom"),
    ],
)
def test_what_fails_fails_alone(model: Lengths, inputs: list[str], code: str, reason: str) -> None:
    """One terminal event, and the next request is served."""
    rig = Rig(model)
    model.may_compute.release(4)
    rig.submit("a", *inputs)
    failed = rig.events(Failed)[-1]
    assert isinstance(failed, Failed)
    assert failed.code == code
    assert reason in failed.message
    rig.submit("b", "ok")
    assert rig.events(Completed)[-1].request_id == "b"
    rig.stop()


def test_a_full_queue_and_a_wrong_request(model: Lengths) -> None:
    """Both are refused with their reason."""
    rig = Rig(model, max_queue=1)
    rig.submit("a", "x")
    model.batches.get(timeout=20)
    rig.submit("b", "x")
    rig.submit("c", "x")  # looked at together with b, which has the only place
    rig.side.put(Submit(GenerateRequest(request_id="d", model="m", prompt="x")))
    model.may_compute.release(2)
    failed: dict[str, Failed] = {}
    while len(failed) < 2:
        failed |= {e.request_id: e for e in rig.events(Failed) if isinstance(e, Failed)}
    assert failed["c"].code == "queue_full"
    assert "does not write text" in failed["d"].message
    rig.stop()
