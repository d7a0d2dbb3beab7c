"""The accept thread beside the text thread: order, cancels, settings, ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from omlxd.ipc.messages import (
    Accepted,
    Cancel,
    Configure,
    Delta,
    Event,
    Events,
    Failed,
    LiveSettings,
    Stats,
    Stop,
)
from omlxd.worker.ports import EngineStats, TokenOut
from omlxd.worker.text import EXIT_BROKEN, EXIT_STOPPED
from tests.support.text_side import LETTER, Side
from tests.support.tokenizers import text_model


class SlowTokenizer:
    """Stays in `encode` until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.may_return = threading.Event()
        self.texts: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.texts.append(text)
        self.entered.set()
        assert self.may_return.wait(10)
        return [5, 6]


class SlowSide:
    """A text thread that has loaded a model whose tokenizer stays at work."""

    def __init__(self) -> None:
        self.tokenizer = SlowTokenizer()
        self.side = Side(lambda _settings: text_model(tokenizer=self.tokenizer))
        self.engine = self.side.factory.engine
        self.side.start()
        self.side.load()

    def begin(self, request_id: str) -> None:
        """Submit a prompt of text, and wait until it is being tokenised."""
        self.side.submit(request_id, prompt=request_id)
        assert self.tokenizer.entered.wait(10)

    def say(self, request_id: str) -> None:
        assert self.side.factory.listener is not None
        self.side.factory.listener.on_tokens([TokenOut(request_id, 0, LETTER)], [])

    def pass_round(self) -> None:
        """What was put before has been handled when this returns."""
        assert self.side.factory.listener is not None
        stats = EngineStats(running=0, waiting=0, active_bytes=0, cache_bytes=0)
        self.side.factory.listener.on_stats(stats)
        assert isinstance(self.side.frame(), Stats)


@pytest.fixture
def slow() -> Iterator[SlowSide]:
    slow = SlowSide()
    yield slow
    slow.tokenizer.may_return.set()
    slow.side.stop()


def test_text_comes_out_while_a_prompt_is_being_tokenised(slow: SlowSide) -> None:
    """A prompt that takes long costs no other request anything."""
    slow.side.submit("first")
    assert slow.side.frame() == Events([Accepted("first", 2)])
    slow.begin("long")
    slow.say("first")
    assert slow.side.frame() == Events([Delta("first", 0, "a")])
    slow.tokenizer.may_return.set()
    assert slow.side.frame() == Events([Accepted("long", 2)])


def test_requests_are_accepted_in_the_order_they_came(slow: SlowSide) -> None:
    """A short prompt behind a long one waits for it."""
    slow.begin("long")
    for request_id in ("b", "c"):
        slow.side.submit(request_id)
    slow.tokenizer.may_return.set()
    events: list[Event] = []
    while len(events) < 3:
        frame = slow.side.frame()
        assert isinstance(frame, Events)
        events += frame.events
    assert events == [Accepted("long", 2), Accepted("b", 2), Accepted("c", 2)]
    assert [rows[0].request_id for rows in slow.engine.submitted] == ["long", "b", "c"]


def test_a_request_cancelled_while_it_is_being_accepted_is_dropped(slow: SlowSide) -> None:
    """No event follows and the engine never hears of it; one still queued is not tokenised."""
    slow.begin("long")
    slow.side.submit("queued", prompt="queued")
    slow.side.text.put(Cancel("long"))
    slow.side.text.put(Cancel("queued"))
    slow.pass_round()
    slow.tokenizer.may_return.set()
    slow.side.submit("next")
    assert slow.side.frame() == Events([Accepted("next", 2)])
    assert [rows[0].request_id for rows in slow.engine.submitted] == ["next"]
    assert slow.engine.cancelled == []
    assert slow.tokenizer.texts == ["long"]


def test_settings_count_for_what_comes_after_them(slow: SlowSide) -> None:
    """A request keeps the settings it came under, however long it waits for its turn."""
    slow.begin("long")
    slow.side.text.put(Configure(LiveSettings(max_context=2)))
    slow.side.submit("late")
    slow.tokenizer.may_return.set()
    events: list[Event] = []
    while len(events) < 2:
        frame = slow.side.frame()
        assert isinstance(frame, Events)
        events += frame.events
    assert events[0] == Accepted("long", 2)
    assert isinstance(events[1], Failed)
    assert (events[1].request_id, events[1].max_context) == ("late", 2)


def test_stop_does_not_wait_for_a_prompt_that_is_being_tokenised(slow: SlowSide) -> None:
    """The text thread is over at once, and what is queued is not tokenised any more."""
    slow.begin("long")
    slow.side.submit("queued", prompt="queued")
    slow.side.text.put(Stop())
    assert slow.side.join() == EXIT_STOPPED
    assert not slow.tokenizer.may_return.is_set()
    slow.tokenizer.may_return.set()
    assert slow.tokenizer.texts == ["long"]


def test_an_engine_that_breaks_fails_what_is_being_accepted_too(
    slow: SlowSide, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client is not left without an end."""
    slow.begin("long")
    slow.engine.ended.set_exception(RuntimeError("out of memory"))
    frame = slow.side.frame()
    assert isinstance(frame, Events)
    assert [event.request_id for event in frame.events] == ["long"]
    assert isinstance(frame.events[0], Failed)
    assert slow.side.join() == EXIT_BROKEN
    assert "out of memory" in capsys.readouterr().err
