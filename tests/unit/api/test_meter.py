"""The record of one request, from events and times that are given."""

from __future__ import annotations

import pytest

from omlxd.api.meter import Meter
from omlxd.api.ports import RequestRecord
from omlxd.errors import QueueFull
from omlxd.ipc.messages import Accepted, Completed, Delta, Finished, Usage


def meter() -> Meter:
    return Meter(RequestRecord(request_id="req_1", api="chat"), 100.0, keep=lambda record: None)


def closed(tally: Meter, now: float) -> RequestRecord:
    tally.close(now)
    return tally.record


def test_the_record_is_handed_over_once() -> None:
    """Closing again, later or with another end, changes and records nothing."""
    kept: list[RequestRecord] = []
    tally = Meter(RequestRecord(request_id="req_1", api="chat"), 100.0, keep=kept.append)
    tally.close(101.0)
    tally.close(109.0)
    assert [record.latency_ms for record in kept] == [1000.0]


def test_a_whole_request() -> None:
    """First token, rate after it, latency and usage are all there."""
    tally = meter()
    tally.note(Accepted("req_1", 9), 100.5)
    tally.note(Delta("req_1", 0, "", tokens=0), 101.0)
    tally.note(Delta("req_1", 0, "ab", tokens=2), 102.0)
    tally.note(Delta("req_1", 0, "c"), 103.0)
    tally.note(Delta("req_1", 0, "d"), 104.0)
    tally.note(Finished("req_1", 0, "length"), 104.0)
    usage = Usage(prompt_tokens=9, output_tokens=4, cached_tokens=6, ram=4, ssd=2, computed=3)
    tally.note(Completed("req_1", usage, queue_ms=12.0), 104.5)
    record = closed(tally, 105.0)
    assert (record.status, record.finish_reason, record.error) == (200, "length", "")
    assert (record.prompt_tokens, record.cached_tokens, record.output_tokens) == (9, 6, 4)
    assert record.cache == {"ram": 4, "ssd": 2, "computed": 3}
    assert (record.queue_ms, record.ttft_ms, record.latency_ms) == (12.0, 2000.0, 5000.0)
    assert record.output_tps == pytest.approx(1.0)  # two tokens in the two seconds after the first


def test_a_single_token_has_no_rate() -> None:
    """A rate needs two moments."""
    tally = meter()
    tally.note(Delta("req_1", 0, "x"), 101.0)
    assert closed(tally, 102.0).output_tps is None


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 1.0), (20, 0.001)])
def test_what_is_too_short_to_measure_has_no_rate(tokens: int, seconds: float) -> None:
    """One token after the first, or tokens that came in one go, tell nothing of the speed."""
    tally = meter()
    tally.note(Delta("req_1", 0, "x"), 101.0)
    tally.note(Delta("req_1", 0, "y", tokens=tokens), 101.0 + seconds)
    assert closed(tally, 103.0).output_tps is None


def test_a_client_that_left() -> None:
    """What was produced until then is counted, and the status says who ended it."""
    tally = meter()
    tally.note(Accepted("req_1", 9), 100.5)
    tally.note(Delta("req_1", 0, "x"), 101.0)
    tally.client_gone()
    record = closed(tally, 101.5)
    assert (record.status, record.finish_reason) == (499, "aborted")
    assert (record.prompt_tokens, record.output_tokens) == (9, 1)


def test_a_failure() -> None:
    """The error's own status and words are kept."""
    tally = meter()
    tally.fail(QueueFull("Too many wait."))
    record = closed(tally, 100.1)
    assert (record.status, record.finish_reason, record.error) == (503, "error", "Too many wait.")
    assert record.ttft_ms is None
