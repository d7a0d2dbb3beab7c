"""Prompts that are only counted."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from omlxd.ipc.messages import (
    Accepted,
    Completed,
    Event,
    Events,
    Failed,
    GenerateRequest,
    LiveSettings,
    Usage,
)
from omlxd.worker.text_requests import Requests
from tests.fakes.engine_run import FakeEngine
from tests.support.text_side import Side
from tests.support.tokenizers import text_model


@pytest.fixture
def side() -> Iterator[Side]:
    side = Side()
    side.start()
    yield side
    side.stop()


def test_a_count_needs_the_tokenizer_only(side: Side) -> None:
    """Weights or none, the engine never hears of it; and its id is free again."""
    side.load()
    for _ in range(2):
        side.submit(count_only=True)
        assert side.frame() == Events([Accepted("r", 2), Completed("r", Usage())])
    assert side.factory.engine.submitted == []


def test_a_count_takes_no_place_in_the_queue() -> None:
    """It is refused no more than it makes others be refused, whether it is waited for or not."""
    requests = Requests(
        FakeEngine(),
        decoding=text_model().decoding,
        live=LiveSettings(max_concurrent_requests=1, max_queue=1),
        begin_accept=lambda _request, _live: Future(),
    )

    def submit(request_id: str, *, count_only: bool = False) -> list[Event]:
        request = GenerateRequest(
            request_id=request_id, model="tiny", prompt=[5], count_only=count_only
        )
        return requests.submit(request)

    for number in range(4):
        assert submit(f"c{number}", count_only=True) == []
    requests.cancel("c3")
    for name in ("a", "b"):
        assert submit(name) == []
    assert isinstance(submit("late")[0], Failed)
    assert submit("c4", count_only=True) == []
