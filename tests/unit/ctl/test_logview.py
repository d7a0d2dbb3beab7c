"""Log lines: filters, the readable form, and sums."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click
import pytest

from omlxctl.logview import Filter, add_up, parse, percentiles, pretty, stats_lines

LINE = {
    "time": "2026-01-02T03:04:05.000Z",
    "level": "info",
    "type": "request",
    "model": "A",
    "status": 200,
}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize("line", ["", "{", "[]", "5", "Traceback (most recent call last):"])
def test_what_is_no_record_is_none(line: str) -> None:
    """Half a line and text that is not ours are not records."""
    assert parse(line) is None


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (Filter(), True),
        (Filter(type="request"), True),
        (Filter(type="listen"), False),
        (Filter(model="A"), True),
        (Filter(model="B"), False),
        (Filter(type="request", model="B"), False),
        (Filter(since=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)), True),
        (Filter(since=NOON), False),
    ],
)
def test_filters_narrow(wanted: Filter, taken: bool) -> None:
    """A line passes when it meets every filter that is set."""
    assert wanted.takes(LINE) is taken


@pytest.mark.parametrize("time", [None, "yesterday", "2026-01-02T13:00:00"])
def test_a_line_without_a_time_is_older_than_all(time: str | None) -> None:
    """--since drops lines whose time cannot be read or has no zone."""
    assert Filter(since=NOON).takes(LINE | {"time": time}) is False


def test_the_readable_form_keeps_every_field() -> None:
    """time LEVEL type, then key=value; what would be ambiguous is JSON."""
    record = LINE | {"level": "warning", "message": "two words", "cache": {"ram": 1}, "empty": ""}
    assert click.unstyle(pretty(record)) == (
        "2026-01-02T03:04:05.000Z  WARNING  request         "
        'model=A status=200 message="two words" cache={"ram":1} empty=""'
    )


def test_percentiles_are_interpolated() -> None:
    """p50, p90 and p99 of the values themselves; one value is all three; none is none."""
    assert percentiles([float(n) for n in range(101)]) == {"p50": 50.0, "p90": 90.0, "p99": 99.0}
    assert percentiles([7.0]) == {"p50": 7.0, "p90": 7.0, "p99": 7.0}
    assert percentiles([]) is None


def test_request_lines_add_up_by_model() -> None:
    """Counts, hit rates and times per model; other lines do not count."""
    hit = LINE | {
        "prompt_tokens": 100,
        "cached_tokens": 75,
        "output_tokens": 10,
        "cache_hit": True,
        "ttft_ms": 100,
        "latency_ms": 1000.0,
        "output_tps": 10.0,
    }
    miss = LINE | {"prompt_tokens": 50, "cached_tokens": 0, "status": 503, "ttft_ms": None}
    stats = add_up([miss, hit, LINE | {"type": "listen"}, hit | {"model": "B"}])
    assert list(stats) == ["A", "B"]
    assert stats["A"].summary() == {
        "requests": 2,
        "errors": 1,
        "prompt_tokens": 150,
        "cached_tokens": 75,
        "output_tokens": 10,
        "hit_rate": 0.5,
        "cached_token_rate": 0.5,
        "ttft_ms": {"p50": 100.0, "p90": 100.0, "p99": 100.0},
        "latency_ms": {"p50": 1000.0, "p90": 1000.0, "p99": 1000.0},
        "output_tps": {"p50": 10.0, "p90": 10.0, "p99": 10.0},
    }
    json.dumps(stats["A"].summary(), allow_nan=False)


def test_sums_stand_in_a_table() -> None:
    """One row a model; what has no figure is a dash."""
    assert stats_lines({}) == ["no requests"]
    assert stats_lines(add_up([LINE | {"ttft_ms": 1.6}])) == [
        "MODEL  REQUESTS  ERRORS  HIT  CACHED  "
        "TTFT_MS P50/P90/P99  LATENCY_MS P50/P90/P99  TPS P50/P90/P99",
        "A      1         0       0%   -       2/2/2                -                       -",
    ]


def test_a_line_cannot_steer_the_terminal() -> None:
    """Control characters in a field are shown as escapes."""
    assert pretty(LINE | {"model": "a\x1bb", "error": "c\x9b d"}).isprintable()
