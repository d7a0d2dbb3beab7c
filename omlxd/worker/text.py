"""The text thread: one queue in (frames from the daemon, calls from the engine), frames out.

It is the only one that sends once it runs, so frames are in order: `TokenizerReady`, `Loaded`,
and each request's events. What is queued when it looks goes out as one `Events` frame.

Prompts are tokenised in the accept thread, one after the other, so that a long one delays only
those behind it. Both threads use one tokenizer, and neither changes it.
"""

from __future__ import annotations

import queue
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from omlxd.errors import EngineFailed, ModelUnavailable, OmlxError, RequestInvalid
from omlxd.ipc.messages import (
    CacheCommand,
    CacheDone,
    CacheEvicted,
    CacheReport,
    Cancel,
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
    LoadSettings,
    Stats,
    Stop,
    Submit,
    TokenizerReady,
    ToWorker,
)
from omlxd.worker.accept import AcceptedRequest, accept, served_window
from omlxd.worker.ports import (
    CacheFrame,
    EngineFactory,
    EngineFacts,
    EngineRun,
    EngineStats,
    LoadError,
    RowUsage,
    TokenOut,
)
from omlxd.worker.side import EXIT_BROKEN, EXIT_LOAD_FAILED, EXIT_STOPPED
from omlxd.worker.text_model import TextModel
from omlxd.worker.text_requests import Requests


@dataclass(frozen=True, slots=True)
class _Scheduled:
    request_id: str
    at: float


@dataclass(frozen=True, slots=True)
class _Tokens:
    tokens: Sequence[TokenOut]
    usages: Sequence[RowUsage]


@dataclass(frozen=True, slots=True)
class _RequestFailed:
    request_id: str
    error: OmlxError


@dataclass(frozen=True, slots=True)
class _AcceptDone:
    request: GenerateRequest
    result: Future[AcceptedRequest]


@dataclass(frozen=True, slots=True)
class _WeightsIn:
    facts: Future[EngineFacts]
    at: float


@dataclass(frozen=True, slots=True)
class _EngineEnded:
    error: BaseException | None


_FromEngine = _Scheduled | _Tokens | _RequestFailed
_Input = ToWorker | _FromEngine | _AcceptDone | _WeightsIn | _EngineEnded | EngineStats | CacheFrame


class TextSide:
    """`put` and the engine's calls only enqueue, from any thread; `run` is the thread's body."""

    def __init__(
        self,
        send: Callable[[FromWorker], None],
        *,
        engine_factory: EngineFactory,
        load_text: Callable[[LoadSettings], TextModel],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._clock = send, clock
        self._engine_factory, self._load_text = engine_factory, load_text
        self._inbox: queue.SimpleQueue[_Input] = queue.SimpleQueue()
        self._accept_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="accept")
        self._events: list[Event] = []
        self._engine: EngineRun | None = None
        self._model: TextModel | None = None
        self._requests: Requests | None = None
        self._live = LiveSettings()
        self._load_began = 0.0

    # ---------------------------------------------------------------- any thread

    def put(self, message: ToWorker) -> None:
        self._inbox.put(message)

    def on_scheduled(self, request_id: str) -> None:
        self._inbox.put(_Scheduled(request_id, self._clock()))

    def on_tokens(self, tokens: Sequence[TokenOut], ended: Sequence[RowUsage]) -> None:
        self._inbox.put(_Tokens(tokens, ended))

    def on_failed(self, request_id: str, error: OmlxError) -> None:
        self._inbox.put(_RequestFailed(request_id, error))

    def on_stats(self, stats: EngineStats) -> None:
        self._inbox.put(stats)

    def on_cache(self, frame: CacheFrame) -> None:
        self._inbox.put(frame)

    # ---------------------------------------------------------------- the text thread

    def run(self) -> int:
        """Until the daemon says stop, or the engine is no more; returns the exit code."""
        try:
            return self._serve()
        finally:
            self._accept_thread.shutdown(wait=False, cancel_futures=True)

    def _serve(self) -> int:
        while True:
            for item in self._queued():
                code = self._handle(item)
                if code is not None:
                    self._flush()
                    return code
            self._flush()

    def _queued(self) -> Iterator[_Input]:
        """At least one item, then what else is there already."""
        yield self._inbox.get()
        for _ in range(self._inbox.qsize()):
            yield self._inbox.get()

    def _handle(self, item: _Input) -> int | None:
        """The exit code, if this is the end."""
        match item:
            case Load():
                return self._on_load(item)
            case Stop():
                if self._engine is not None:
                    self._engine.stop()
                return EXIT_STOPPED
            case _WeightsIn():
                return self._on_weights(item)
            case _EngineEnded():
                return self._on_engine_ended(item)
            case EngineStats():
                self._send_now(_stats(item))
            case CacheReport() | CacheEvicted() | CacheDone():
                self._send_now(item)
            case Submit() | Cancel() | Configure() | CacheCommand():
                self._on_daemon(item)
            case _:
                self._on_request(item)
        return None

    def _on_daemon(self, item: Submit | Cancel | Configure | CacheCommand) -> None:
        requests = self._requests
        match item:
            case Submit() if requests is None:
                reason = "this worker has no model yet; load one first"
                self._events.append(Failed(item.request.request_id, ModelUnavailable.code, reason))
            case Submit(request=GenerateRequest() as request) if requests is not None:
                self._events += requests.submit(request)
            case Submit():
                error = RequestInvalid("this model writes text; it gives no vectors or scores")
                self._events.append(Failed(item.request.request_id, error.code, error.message))
            case Cancel() if requests is not None:
                requests.cancel(item.request_id)
            case CacheCommand() if self._engine is None:
                self._send_now(CacheDone(item.command_id, 0, 0))  # no model, nothing kept
            case CacheCommand() if self._engine is not None:
                self._engine.command_cache(item)
            case Configure():
                self._live = item.live
                if requests is not None:
                    requests.configure(item.live)

    def _on_request(self, item: _FromEngine | _AcceptDone) -> None:
        requests = self._requests
        assert requests is not None, "there are no requests before the tokenizer is in"
        match item:
            case _AcceptDone():
                self._events += requests.on_accepted(item.request, item.result, now=self._clock())
            case _Tokens():
                self._events += requests.on_tokens(item.tokens, item.usages)
            case _Scheduled():
                requests.on_scheduled(item.request_id, at=item.at)
            case _RequestFailed():
                self._events += requests.fail(item.request_id, item.error)

    def _on_load(self, item: Load) -> int | None:
        assert self._engine is None, "a worker loads one model in its life"
        self._live, self._load_began = item.live, self._clock()
        # The weights load in the engine's thread while this one loads the tokenizer.
        engine = self._engine = self._engine_factory(item.load, item.live, self)
        engine.facts.add_done_callback(
            lambda facts: self._inbox.put(_WeightsIn(facts, self._clock()))
        )
        engine.ended.add_done_callback(
            lambda ended: self._inbox.put(_EngineEnded(ended.exception()))
        )
        try:
            self._model = self._load_text(item.load)
        except LoadError as error:
            return self._load_failed(error)
        self._requests = Requests(
            engine,
            decoding=self._model.decoding,
            live=item.live,
            begin_accept=self._begin_accept,
        )
        self._send_now(TokenizerReady(served_window(self._model, self._live)))
        return None

    def _begin_accept(
        self, request: GenerateRequest, live: LiveSettings
    ) -> Future[AcceptedRequest]:
        assert self._model is not None
        result = self._accept_thread.submit(accept, request, model=self._model, live=live)
        result.add_done_callback(lambda done: self._inbox.put(_AcceptDone(request, done)))
        return result

    def _on_weights(self, item: _WeightsIn) -> int | None:
        assert self._model is not None
        assert self._requests is not None
        error = item.facts.exception()
        if isinstance(error, LoadError):
            return self._load_failed(error)
        if error is not None:
            return self._on_engine_ended(_EngineEnded(error))
        facts = item.facts.result()
        self._requests.batches = facts.batches
        self._send_now(
            Loaded(
                duration_s=item.at - self._load_began,
                weights_bytes=facts.weights_bytes,
                max_context=served_window(self._model, self._live),
                batches=facts.batches,
                batch_reason=facts.batch_reason,
                prefix_reuse=facts.prefix_reuse,
                prefix_reuse_reason=facts.prefix_reuse_reason,
                kv_bytes_per_token=facts.kv_bytes_per_token,
            )
        )
        return None

    def _load_failed(self, error: LoadError) -> int:
        self._send_now(LoadFailed(str(error), error.permanent))
        return EXIT_LOAD_FAILED

    def _on_engine_ended(self, item: _EngineEnded) -> int | None:
        if item.error is None:  # it failed to load: the frame that says so has its own way
            return None
        traceback.print_exception(item.error, file=sys.stderr)
        if self._requests is not None:
            reason = EngineFailed(f"the engine broke: {item.error!r}; it is started anew")
            self._events += self._requests.fail_all(reason)
        return EXIT_BROKEN

    def _send_now(self, frame: FromWorker) -> None:
        self._flush()
        self._send(frame)

    def _flush(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._send(Events(events))


def _stats(stats: EngineStats) -> Stats:
    return Stats(
        running=stats.running,
        waiting=stats.waiting,
        active_bytes=stats.active_bytes,
        cache_bytes=stats.cache_bytes,
        prefill_tps=stats.prefill_tps,
        decode_tps=stats.decode_tps,
        rows=list(stats.rows),
    )
