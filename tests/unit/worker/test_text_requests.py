"""The table of requests: exactly one terminal event each, none after a cancel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Usage,
)
from omlxd.worker.detokenize import Decoding
from omlxd.worker.ports import RowUsage, TokenOut
from omlxd.worker.text_requests import Requests
from tests.fakes.engine_run import FakeEngine
from tests.support.models import EOS_TOKENS
from tests.support.tokenizers import sentencepiece_tokenizer, text_model

MODEL = text_model()
END = EOS_TOKENS[0]


class Table:
    """Requests over an engine that keeps what it is told."""

    def __init__(self, live: LiveSettings | None = None) -> None:
        self.engine = FakeEngine()
        self.requests = Requests(self.engine, model=MODEL, live=live or LiveSettings())

    def submit(self, request_id: str = "r", *, now: float = 0.0, **fields: Any) -> list[Event]:
        request = GenerateRequest(
            request_id=request_id, model="tiny", **({"prompt": [5, 6, 7]} | fields)
        )
        return self.requests.submit(request, now=now)

    def say(self, text: str, request_id: str = "r", index: int = 0) -> list[Event]:
        tokens = MODEL.tokenizer.encode(text)
        return self.requests.on_tokens([TokenOut(request_id, index, t) for t in tokens], [])

    def end(self, request_id: str = "r", index: int = 0) -> list[Event]:
        return self.requests.on_tokens([TokenOut(request_id, index, END, "stop")], [])


@pytest.fixture
def table() -> Iterator[Table]:
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
    """Two requests of one id could not be told apart."""
    table.submit()
    [failed] = table.submit()
    assert isinstance(failed, Failed)
    assert failed.code == "invalid_request"
    assert table.say("a") == [Delta("r", 0, "a")]


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


def test_a_failure_in_the_engine_is_terminal(table: Table) -> None:
    """One request fails, or all that are open do, each once."""
    for request_id in "abc":
        table.submit(request_id)
    assert table.requests.fail("b", EngineFailed("broke")) == [
        Failed("b", "engine_failed", "broke")
    ]
    all_failed = table.requests.fail_all(EngineFailed("gone"))
    assert [event.request_id for event in all_failed] == ["a", "c"]
    assert table.requests.fail_all(EngineFailed("gone")) == []


def test_a_tokenizer_that_raises_costs_its_request_only(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace goes to stderr, the client gets an error, the next request is served."""

    def broken(_text: str) -> list[int]:
        raise ZeroDivisionError("in a model's own code")

    with monkeypatch.context() as patch:
        patch.setattr(MODEL.tokenizer, "encode", broken)
        [failed] = table.submit(prompt="hello")
    assert isinstance(failed, Failed)
    assert failed.code == "engine_failed"
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert table.submit(prompt="hello")[0] == Accepted("r", len(MODEL.tokenizer.encode("hello")))


def test_live_changes_count_for_the_next_request(table: Table) -> None:
    """Running requests keep what they were accepted with, the engine is told as well."""
    table.submit("a")
    live = LiveSettings(max_output_tokens=2)
    table.requests.configure(live)
    table.submit("b")
    assert [rows[0].max_tokens for rows in table.engine.submitted] == [61, 2]
    assert table.engine.live == live


@pytest.mark.parametrize(("batches", "room"), [(True, 5), (False, 4)])
def test_the_queue_is_bounded(batches: bool, room: int) -> None:
    """What can run at once is no queue: two slots (or one) and three places to wait."""
    table = Table(LiveSettings(max_concurrent_requests=2, max_queue=3))
    table.requests.batches = batches
    for number in range(room):
        assert table.submit(f"r{number}") == [Accepted(f"r{number}", 3)]
    [failed] = table.submit("late")
    assert isinstance(failed, Failed)
    assert failed.code == "queue_full"
    table.requests.on_scheduled("r0", at=1.0)
    assert isinstance(table.submit("late")[0], Failed)
    table.end("r0")
    assert table.submit("late") == [Accepted("late", 3)]


@given(
    walk=st.lists(
        st.tuples(
            st.sampled_from(["submit", "say", "end", "cancel", "fail", "scheduled"]),
            st.sampled_from("ab"),
            st.integers(0, 1),
        ),
        max_size=40,
    )
)
def test_every_accepted_request_has_one_terminal_event(walk: list[tuple[str, str, int]]) -> None:
    """Whatever the order: one for each acceptance, or none if it was cancelled or runs."""
    table = Table()
    is_open: dict[str, bool] = {}
    for action, request_id, index in walk:
        events: list[Event] = []
        if action == "submit" and not is_open.get(request_id):
            events = table.submit(request_id, n=2, stop=["b"])
            is_open[request_id] = True
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
            is_open[request_id] = False
        for event in events:
            assert is_open[event.request_id], "nothing comes after the end"
            if isinstance(event, Completed | Failed):
                is_open[event.request_id] = False
    left = {event.request_id for event in table.requests.fail_all(EngineFailed("end"))}
    assert left == {request_id for request_id, running in is_open.items() if running}


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
    engine = FakeEngine()
    model = text_model(decoding=Decoding(pieces))
    requests = Requests(engine, model=model, live=LiveSettings())
    requests.submit(GenerateRequest(request_id="r", model="tiny", **fields), now=0.0)
    tokens = pieces.encode("hello", add_special_tokens=False)
    events = requests.on_tokens([TokenOut("r", 0, token) for token in tokens], [])
    assert "".join(event.text for event in events if isinstance(event, Delta)) == expected
