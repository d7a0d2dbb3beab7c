"""The text thread: frames and engine calls in, frames out in order, an exit code at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from omlxd.errors import EngineFailed
from omlxd.ipc.messages import (
    Accepted,
    CacheCommand,
    CacheDone,
    CacheEvicted,
    CacheReport,
    Cancel,
    Completed,
    Configure,
    Delta,
    Events,
    Failed,
    Finished,
    LiveSettings,
    Loaded,
    LoadFailed,
    LoadSettings,
    Stats,
    Stop,
    TokenizerReady,
    Usage,
)
from omlxd.worker.ports import EngineStats, LoadError, RowUsage, TokenOut
from omlxd.worker.text import EXIT_BROKEN, EXIT_LOAD_FAILED, EXIT_STOPPED
from omlxd.worker.text_model import TextModel
from tests.fakes.engine_run import FACTS
from tests.support.models import EOS_TOKENS
from tests.support.text_side import LETTER, LOAD, MODEL, Side


@pytest.fixture
def side() -> Iterator[Side]:
    side = Side()
    side.start()
    yield side
    side.stop()


def test_requests_are_accepted_before_the_weights_are_in(side: Side) -> None:
    """The tokenizer is enough to accept; the rows wait in the engine."""
    side.load()
    side.submit()
    assert side.frame() == Events([Accepted("r", 2)])
    assert len(side.factory.engine.submitted) == 1
    side.factory.engine.facts.set_result(FACTS)
    assert side.frame() == Loaded(
        duration_s=0.0,
        weights_bytes=1000,
        max_context=48,
        batches=True,
        kv_bytes_per_token=8,
    )


def test_weights_that_are_in_first_are_told_after_the_tokenizer() -> None:
    """A model that loads faster than its tokenizer is not ready before it."""
    weights_in = threading.Event()

    def slow(_settings: LoadSettings) -> TextModel:
        assert weights_in.wait(10)
        return MODEL

    side = Side(slow)
    side.start()
    side.text.put(LOAD)
    side.factory.engine.facts.set_result(FACTS)
    weights_in.set()
    assert isinstance(side.frame(), TokenizerReady)
    assert isinstance(side.frame(), Loaded)
    side.stop()


def test_one_step_of_the_engine_is_one_frame(side: Side) -> None:
    """All rows' deltas of a step go out together, with what else is queued."""
    side.load()
    listener = side.factory.listener
    assert listener is not None
    for request_id in "ab":
        side.submit(request_id)
        side.frame()
    tokens = [TokenOut(request_id, 0, LETTER) for request_id in "ab"]
    listener.on_tokens(tokens, [RowUsage("a", 0, computed=2)])
    assert side.frame() == Events([Delta("a", 0, "a"), Delta("b", 0, "a")])


def test_what_is_queued_goes_out_as_one_frame() -> None:
    """A thread that fell behind catches up in one frame."""
    side = Side()
    side.submit("a")
    side.submit("b")
    side.text.put(Cancel("nobody"))
    side.text.put(Stop())
    side.start()
    frame = side.frame()
    assert isinstance(frame, Events)
    assert [event.request_id for event in frame.events] == ["a", "b"]
    assert side.join() == EXIT_STOPPED


def test_a_request_runs_to_its_end(side: Side) -> None:
    """The engine's calls become the events of the request, in order."""
    side.load()
    side.submit()
    side.frame()
    listener = side.factory.listener
    assert listener is not None
    listener.on_scheduled("r")
    listener.on_tokens([TokenOut("r", 0, LETTER)], [RowUsage("r", 0, computed=2)])
    listener.on_tokens([TokenOut("r", 0, EOS_TOKENS[0], "stop")], [])
    events: list[Any] = []
    while not (events and isinstance(events[-1], Completed)):
        frame = side.frame()
        assert isinstance(frame, Events)
        events += frame.events
    assert events == [
        Delta("r", 0, "a"),
        Finished("r", 0, "stop"),
        Completed("r", Usage(prompt_tokens=2, output_tokens=2, computed=2)),
    ]


def test_a_request_that_fails_in_the_engine_is_told(side: Side) -> None:
    """on_failed is the terminal event."""
    side.load()
    side.submit()
    side.frame()
    assert side.factory.listener is not None
    side.factory.listener.on_failed("r", EngineFailed("broke"))
    assert side.frame() == Events([Failed("r", "engine_failed", "broke")])


def test_live_settings_reach_the_engine_and_the_next_request(side: Side) -> None:
    """A narrower window refuses what would have fitted before."""
    side.load()
    side.text.put(Configure(LiveSettings(max_context=2)))
    side.submit()
    frame = side.frame()
    assert isinstance(frame, Events)
    [failed] = frame.events
    assert isinstance(failed, Failed)
    assert failed.max_context == 2
    assert side.factory.engine.live == LiveSettings(max_context=2)


def test_settings_that_change_while_the_weights_load_count(side: Side) -> None:
    """Loaded tells the window that is served when it is sent."""
    side.load()
    side.text.put(Configure(LiveSettings(max_context=16)))
    side.submit()
    side.frame()
    side.factory.engine.facts.set_result(FACTS)
    loaded = side.frame()
    assert isinstance(loaded, Loaded)
    assert loaded.max_context == 16


def test_figures_of_the_engine_are_passed_on(side: Side) -> None:
    """One Stats frame for each report."""
    side.load()
    assert side.factory.listener is not None
    stats = EngineStats(running=1, waiting=2, active_bytes=3, cache_bytes=4, decode_tps=5.0)
    side.factory.listener.on_stats(stats)
    assert side.frame() == Stats(
        running=1, waiting=2, active_bytes=3, cache_bytes=4, decode_tps=5.0
    )


def test_what_the_prefix_cache_tells_is_passed_on(side: Side) -> None:
    """As it is, in order."""
    side.load()
    assert side.factory.listener is not None
    frames = [CacheReport(namespace="ab", hot_bytes=1), CacheEvicted("hot", 1, 2, "room")]
    for frame in frames:
        side.factory.listener.on_cache(frame)
    assert [side.frame(), side.frame()] == frames


def test_commands_for_the_prefix_cache_reach_the_engine(side: Side) -> None:
    """It answers them; without a model there is nothing to clear."""
    command = CacheCommand(1, "clear")
    side.text.put(command)
    assert side.frame() == CacheDone(1, 0, 0)
    side.load()
    side.text.put(command)
    assert side.factory.listener is not None
    side.factory.listener.on_cache(CacheDone(1, 5, 6))
    assert side.frame() == CacheDone(1, 5, 6)
    assert side.factory.engine.commands == [command]


def test_a_request_without_a_model_is_refused(side: Side) -> None:
    """A spare worker is asked nothing; if it is, it answers."""
    side.submit()
    frame = side.frame()
    assert isinstance(frame, Events)
    assert isinstance(frame.events[0], Failed)
    assert frame.events[0].code == "model_unavailable"


@pytest.mark.parametrize("permanent", [True, False])
def test_weights_that_cannot_be_loaded_end_the_worker(side: Side, permanent: bool) -> None:
    """LoadFailed carries the reason, the exit code is 3."""
    side.load()
    side.factory.engine.facts.set_exception(LoadError("no such shard", permanent=permanent))
    assert side.frame() == LoadFailed("no such shard", permanent)
    assert side.join() == EXIT_LOAD_FAILED


def test_a_tokenizer_that_cannot_be_loaded_ends_the_worker() -> None:
    """The weights are not waited for."""

    def broken(_settings: LoadSettings) -> TextModel:
        raise LoadError("no tokenizer.json", permanent=True)

    side = Side(broken)
    side.start()
    side.text.put(LOAD)
    assert side.frame() == LoadFailed("no tokenizer.json", True)
    assert side.join() == EXIT_LOAD_FAILED


def test_an_engine_that_breaks_fails_its_requests_and_ends_the_worker(
    side: Side, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every open request is told, the trace is on stderr, the exit code is not 0."""
    side.load()
    side.factory.engine.facts.set_result(FACTS)
    side.frame()
    side.submit()
    side.frame()
    side.factory.engine.ended.set_exception(RuntimeError("out of memory"))
    frame = side.frame()
    assert isinstance(frame, Events)
    [failed] = frame.events
    assert isinstance(failed, Failed)
    assert failed.code == "engine_failed"
    assert "out of memory" in failed.message
    assert side.join() == EXIT_BROKEN
    assert "RuntimeError: out of memory" in capsys.readouterr().err


def test_stop_ends_the_engine_first(side: Side) -> None:
    """The engine's thread is over when the process leaves."""
    side.load()
    side.text.put(Stop())
    assert side.join() == EXIT_STOPPED
    assert side.factory.engine.is_stopped
