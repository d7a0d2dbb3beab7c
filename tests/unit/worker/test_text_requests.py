"""The table of requests: exactly one terminal event each, none after a cancel."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from omlxd.errors import EngineFailed
from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Delta,
    Event,
    Failed,
    Finished,
    GenerateRequest,
    LiveSettings,
    PrefixMatch,
    Usage,
)
from omlxd.worker.accept import AcceptedRequest, accept
from omlxd.worker.detokenize import Decoding
from omlxd.worker.ports import RowUsage, TokenOut
from omlxd.worker.text_model import TextModel
from omlxd.worker.text_requests import Requests
from tests.fakes.engine_run import FakeEngine
from tests.support.models import EOS_TOKENS
from tests.support.tokenizers import sentencepiece_tokenizer, text_model

MODEL = text_model()
END = EOS_TOKENS[0]


class Table:
    """Requests over an engine that keeps what it is told; acceptance runs when the test says."""

    def __init__(self, live: LiveSettings | None = None, *, model: TextModel = MODEL) -> None:
        self.engine = FakeEngine()
        self.model = model
        self.begun: deque[tuple[GenerateRequest, LiveSettings, Future[AcceptedRequest]]] = deque()
        self.requests = Requests(
            self.engine,
            decoding=model.decoding,
            live=live or LiveSettings(),
            begin_accept=self._begin,
        )

    def _begin(self, request: GenerateRequest, live: LiveSettings) -> Future[AcceptedRequest]:
        self.begun.append((request, live, Future()))
        return self.begun[-1][2]

    def begin(self, request_id: str = "r", **fields: Any) -> list[Event]:
        """Submit only."""
        prompt = {} if "messages" in fields else {"prompt": [5, 6, 7]}
        request = GenerateRequest(request_id=request_id, model="tiny", **(prompt | fields))
        return self.requests.submit(request)

    def accept_next(self, *, now: float = 0.0) -> list[Event]:
        """What the accept thread does with the oldest request."""
        request, live, result = self.begun.popleft()
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(accept(request, model=self.model, live=live))
            except BaseException as error:
                result.set_exception(error)
        return self.requests.on_accepted(request, result, now=now)

    def submit(self, request_id: str = "r", *, now: float = 0.0, **fields: Any) -> list[Event]:
        return self.begin(request_id, **fields) or self.accept_next(now=now)

    def say(self, text: str, request_id: str = "r", index: int = 0) -> list[Event]:
        tokens = MODEL.tokenizer.encode(text)
        return self.requests.on_tokens([TokenOut(request_id, index, t) for t in tokens], [])

    def end(self, request_id: str = "r", index: int = 0) -> list[Event]:
        return self.requests.on_tokens([TokenOut(request_id, index, END, "stop")], [])


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_request_from_acceptance_to_completion(table: Table) -> None:
    """Accepted, text, finish, usage: in this order, with the numbers of the engine."""
    assert table.submit(now=1.0) == [Accepted("r", 3)]
    assert len(table.engine.submitted) == 1
    table.requests.on_scheduled("r", at=1.25)
    usage = RowUsage("r", 0, cached_ram=1, cached_ssd=1, computed=1)
    token = MODEL.tokenizer.encode("a")[0]
    assert table.requests.on_tokens([TokenOut("r", 0, token)], [usage]) == [Delta("r", 0, "a")]
    assert table.end() == [
        Finished("r", 0, "stop"),
        Completed(
            "r",
            Usage(prompt_tokens=3, output_tokens=2, cached_tokens=2, ram=1, ssd=1, computed=1),
            queue_ms=250.0,
        ),
    ]


def test_a_refusal_is_the_terminal_event(table: Table) -> None:
    """It carries code, parameter and numbers, and the engine hears nothing of it."""
    [failed] = table.submit(prompt=[5] * 64)
    assert isinstance(failed, Failed)
    assert (failed.code, failed.prompt_tokens, failed.max_context) == (
        "context_length_exceeded",
        64,
        64,
    )
    [failed] = table.submit(max_tokens=0)
    assert isinstance(failed, Failed)
    assert failed.param == "max_tokens"
    assert table.engine.submitted == []


def test_an_id_that_is_running_is_refused(table: Table) -> None:
    """Two requests of one id could not be told apart, whether accepted already or not."""
    table.begin()
    [failed] = table.begin()
    assert isinstance(failed, Failed)
    assert failed.code == "invalid_request"
    assert table.accept_next() == [Accepted("r", 3)]
    assert isinstance(table.begin()[0], Failed)
    assert table.say("a") == [Delta("r", 0, "a")]


@pytest.mark.parametrize("cut_by", ["cancel", "stop string"])
def test_late_tokens_never_reach_a_successor(table: Table, cut_by: str) -> None:
    """An id is free again once the engine has shown that it is past the end of the first."""
    table.submit("before")
    table.submit(stop=["b"])
    if cut_by == "cancel":
        table.requests.cancel("r")
    else:
        assert isinstance(table.say("b")[-1], Completed)
    assert isinstance(table.submit()[0], Failed)
    assert table.say("late") == []
    # It was given to the engine before the cut: to have it scheduled proves nothing.
    table.requests.on_scheduled("before", at=1.0)
    assert isinstance(table.submit()[0], Failed)
    table.submit("after")
    assert isinstance(table.submit()[0], Failed)
    table.requests.on_scheduled("after", at=2.0)
    assert table.submit() == [Accepted("r", 3)]


def test_an_id_whose_request_ran_to_its_end_is_free(table: Table) -> None:
    """The last token is the last that the engine says of it."""
    table.submit()
    table.end()
    assert table.submit() == [Accepted("r", 3)]
    table.requests.fail("r", EngineFailed("broke"))
    assert table.submit() == [Accepted("r", 3)]


def test_a_stop_string_cancels_the_row_and_ends_the_choice(table: Table) -> None:
    """The engine is told at once, and what it had under way is ignored."""
    table.submit(stop=["lo"])
    events = table.say("hello world")
    assert [event for event in events if not isinstance(event, Delta)] == [
        Finished("r", 0, "stop", "lo"),
        Completed("r", Usage(prompt_tokens=3, output_tokens=len(MODEL.tokenizer.encode("hello")))),
    ]
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "hel"
    assert table.engine.cancelled == [("r", 0)]
    assert table.say("more") == table.end() == []


def test_the_request_completes_when_its_last_choice_does(table: Table) -> None:
    """Choices end one by one; usage counts all of them, and the prompt once."""
    table.submit(n=2, stop=["!"])
    table.requests.on_tokens([], [RowUsage("r", 0, computed=3), RowUsage("r", 1, cached_ram=3)])
    assert table.say("a!", index=1)[-1] == Finished("r", 1, "stop", "!")
    assert table.engine.cancelled == [("r", 1)]
    table.say("b", index=0)
    assert table.end(index=0) == [
        Finished("r", 0, "stop"),
        Completed("r", Usage(prompt_tokens=3, output_tokens=4, computed=3)),
    ]


@pytest.mark.parametrize(("word", "message"), [("three", 0), ("five", 2)])
@pytest.mark.parametrize("log_prompts", [False, True])
def test_where_a_prompt_parts_from_another_is_told_by_message(
    word: str, message: int, log_prompts: bool
) -> None:
    """The engine knows the token, the client sent messages; text only if it may be logged."""
    table = Table(LiveSettings(log_prompts=not log_prompts))
    table.requests.configure(LiveSettings(log_prompts=log_prompts))
    contents = ["one two three", "yes", "four five six"]
    roles = ["user", "assistant", "user"]
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
    table.submit(messages=messages)
    table.requests.configure(LiveSettings(log_prompts=not log_prompts))  # for the next request
    prompt = list(table.engine.submitted[0][0].prompt)
    text = MODEL.decoding.text(prompt)
    at = next(
        count
        for count in range(len(prompt))
        if len(MODEL.decoding.text(prompt[:count])) >= text.index(word)
    )
    match = PrefixMatch(ram=at, donor="before", diverged_at=at, why_not_more="diverged")
    usage = RowUsage("r", 0, cached_ram=at, computed=len(prompt) - at, match=match)
    *_, last = table.requests.on_tokens([TokenOut("r", 0, END, "stop")], [usage])
    assert isinstance(last, Completed)
    assert last.match is not None
    assert last.match.message_index == message
    assert (word in last.match.excerpt) == log_prompts
    assert bool(last.match.excerpt) == log_prompts
    assert (last.usage.cached_tokens, last.usage.ram) == (at, at)


@pytest.mark.parametrize(("log_prompts", "text"), [(False, ""), (True, "ahead of all")])
def test_of_a_raw_prompt_there_is_at_most_the_text(log_prompts: bool, text: str) -> None:
    """There are no messages to point at."""
    table = Table(LiveSettings(log_prompts=log_prompts))
    table.submit(prompt="ahead of all")
    match = PrefixMatch(ram=1, diverged_at=1, why_not_more="diverged")
    usage = RowUsage("r", 0, cached_ram=1, computed=2, match=match)
    *_, last = table.requests.on_tokens([TokenOut("r", 0, END, "stop")], [usage])
    assert isinstance(last, Completed)
    assert last.match == structs.replace(match, excerpt=text)


def test_nothing_follows_a_cancel(table: Table) -> None:
    """Not even the text that was held back."""
    table.submit(stop=["hello you"])
    assert table.say("hello") == []
    table.requests.cancel("r")
    assert table.engine.cancelled == [("r", None)]
    assert table.say(" me") == table.end() == []
    assert table.requests.fail("r", EngineFailed("late")) == []
    table.requests.cancel("r")
    assert table.engine.cancelled == [("r", None)]


def test_a_cancel_during_acceptance_leaves_nothing(table: Table) -> None:
    """What comes back is dropped, also when a new request has taken the id; no event, no row."""
    table.begin()
    table.requests.cancel("r")
    table.begin(prompt=[5, 6])
    assert table.accept_next() == []
    assert table.engine.submitted == []
    assert table.accept_next() == [Accepted("r", 2)]
    assert table.engine.cancelled == []


def test_a_refusal_after_a_cancel_is_not_told(table: Table) -> None:
    """Acceptance was under way already, and its error comes too late."""
    table.begin(max_tokens=0)
    request, _, result = table.begun.popleft()
    assert result.set_running_or_notify_cancel()
    table.requests.cancel("r")
    result.set_exception(EngineFailed("late"))
    assert table.requests.on_accepted(request, result, now=0.0) == []


def test_a_failure_in_the_engine_is_terminal(table: Table) -> None:
    """One request fails, or all that are open do, each once."""
    for request_id in "abc":
        table.submit(request_id)
    assert table.requests.fail("b", EngineFailed("broke")) == [
        Failed("b", "engine_failed", "broke")
    ]
    table.begin("d")
    all_failed = table.requests.fail_all(EngineFailed("gone"))
    assert [event.request_id for event in all_failed] == ["a", "c", "d"]
    assert table.requests.fail_all(EngineFailed("gone")) == []


def test_a_tokenizer_that_raises_costs_its_request_only(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace goes to stderr, the client gets an error, the next request is served.

    So it is with a panic of a compiled tokenizer, which is no `Exception`.
    """

    class Panic(BaseException):
        pass

    def broken(_text: str) -> list[int]:
        raise Panic("in a model's own code")

    with monkeypatch.context() as patch:
        patch.setattr(MODEL.tokenizer, "encode", broken)
        [failed] = table.submit(prompt="hello")
    assert isinstance(failed, Failed)
    assert failed.code == "engine_failed"
    assert "Panic" in capsys.readouterr().err
    assert table.submit(prompt="hello")[0] == Accepted("r", len(MODEL.tokenizer.encode("hello")))


def test_live_changes_count_for_the_next_request(table: Table) -> None:
    """Others keep what they were submitted under, the engine is told as well."""
    table.begin("a")
    live = LiveSettings(max_output_tokens=2)
    table.requests.configure(live)
    table.begin("b")
    table.accept_next()
    table.accept_next()
    assert [rows[0].max_tokens for rows in table.engine.submitted] == [61, 2]
    assert table.engine.live == live


@pytest.mark.parametrize("accepted", [0, 2, 4])
@pytest.mark.parametrize(("batches", "room"), [(True, 5), (False, 4)])
def test_the_queue_is_bounded(batches: bool, room: int, accepted: int) -> None:
    """Two slots (or one) and three places to wait, whether accepted already or not."""
    table = Table(LiveSettings(max_concurrent_requests=2, max_queue=3))
    table.requests.batches = batches
    for number in range(room):
        assert table.begin(f"r{number}") == []
    for number in range(accepted):
        assert table.accept_next() == [Accepted(f"r{number}", 3)]
    [failed] = table.begin("late")
    assert isinstance(failed, Failed)
    assert (failed.code, failed.retry_after_s) == ("queue_full", 5.0)
    assert "the queue of tiny is full: 3 waiting, scheduler.max_queue is 3;" in failed.message
    for number in range(accepted, room):
        assert table.accept_next() == [Accepted(f"r{number}", 3)]
    table.requests.on_scheduled("r0", at=1.0)
    assert isinstance(table.submit("late")[0], Failed)
    table.end("r0")
    assert table.submit("late") == [Accepted("late", 3)]


ACTIONS = ["submit", "accept", "say", "end", "cancel", "fail", "scheduled"]


@given(
    walk=st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.sampled_from("ab"), st.integers(0, 1)), max_size=40
    )
)
def test_every_request_has_one_terminal_event(walk: list[tuple[str, str, int]]) -> None:
    """Whatever the order: one for each submission, or none if it was cancelled or still runs."""
    table = Table()
    running: set[str] = set()
    for action, request_id, index in walk:
        events: list[Event] = []
        if action == "submit" and request_id not in running:
            events = table.begin(request_id, n=2, stop=["b"])
            running.add(request_id)
        elif action == "accept" and table.begun:
            events = table.accept_next()
        elif action == "say":
            events = table.say("ab", request_id, index)
        elif action == "end":
            events = table.end(request_id, index)
        elif action == "fail":
            events = table.requests.fail(request_id, EngineFailed("x"))
        elif action == "scheduled":
            table.requests.on_scheduled(request_id, at=1.0)
        elif action == "cancel":
            table.requests.cancel(request_id)
            running.discard(request_id)
        for event in events:
            assert event.request_id in running, "nothing comes after the end"
            if isinstance(event, Completed | Failed):
                running.remove(event.request_id)
    left = [event.request_id for event in table.requests.fail_all(EngineFailed("end"))]
    assert sorted(left) == sorted(running)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "hello"),
        ({"prompt": [5]}, " hello"),
        (
            {"messages": [{"role": "assistant", "content": "x"}], "continue_final": True},
            " hello",
        ),
    ],
)
def test_a_text_that_goes_on_keeps_its_leading_space(fields: dict[str, Any], expected: str) -> None:
    """A reply begins anew; a prompt and a prefilled turn are gone on with."""
    pieces = sentencepiece_tokenizer()
    table = Table(model=text_model(decoding=Decoding(pieces)))
    table.submit(**fields)
    tokens = pieces.encode("hello", add_special_tokens=False)
    events = table.requests.on_tokens([TokenOut("r", 0, token) for token in tokens], [])
    assert "".join(event.text for event in events if isinstance(event, Delta)) == expected
