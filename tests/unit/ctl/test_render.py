"""Tables, times, problems and changes as people read them."""

from __future__ import annotations

import click
import pytest

from omlxctl.render import (
    config_lines,
    event_line,
    plan_lines,
    problem_lines,
    request_rows,
    span,
    table,
)
from omlxd.control.wire import Event, PlanResult, RequestStatus
from omlxd.spec.report import Change, OriginValue, Problem
from tests.fakes.fake_control import TIME


def plain(lines: list[str]) -> list[str]:
    return [click.unstyle(line) for line in lines]


def test_a_table_has_capitals_no_borders_and_a_dash_for_empty() -> None:
    """Columns are as wide as their widest cell; nothing trails the last one."""
    assert table(("A", "LONG", "C"), [("one", "", "x"), ("b", "2", "")]) == [
        "A    LONG  C",
        "one  -     x",
        "b    2     -",
    ]


def test_colour_does_not_move_a_column() -> None:
    """A coloured word keeps the width of the word."""
    lines = table(("PHASE", "PIN"), [("ready", "pin"), ("failed", "")])
    assert lines[1] != click.unstyle(lines[1])
    assert plain(lines) == ["PHASE   PIN", "ready   pin", "failed  -"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0s"),
        (0.9, "0s"),
        (-0.1, "0s"),
        (12.3, "12s"),
        (90, "1m30s"),
        (3599.9, "59m59s"),
        (3600, "1h"),
        (3725, "1h2m"),
        (86399, "23h59m"),
        (86400, "1d0h"),
        (273600, "3d4h"),
    ],
)
def test_a_span_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    """Times are rounded down, and nothing is printed for none."""
    assert span(seconds) == text


def test_a_problem_points_at_its_place() -> None:
    """file:line:column, the line with a caret under the character, and the hint."""
    problem = Problem("o.toml", 2, 3, "defaults.tll", 'unknown key "tll"', 'did you mean "ttl"?')
    assert problem_lines(problem, {"o.toml": "[defaults]\n\t\ttll = 1\r\n"}) == [
        'o.toml:2:3: unknown key "tll"',
        "    \t\ttll = 1",
        "    \t\t^",
        '    did you mean "ttl"?',
    ]


def test_a_problem_of_an_empty_line_has_no_caret() -> None:
    """There is nothing to point at in a line without text."""
    problem = Problem("o.toml", 1, 1, "", "nothing is declared")
    assert problem_lines(problem, {"o.toml": " \n"}) == ["o.toml:1:1: nothing is declared"]


def test_a_problem_shows_escapes_and_points_right() -> None:
    """Control characters of the line are shown, and the caret stands below what is meant."""
    problem = Problem("o.toml", 1, 5, "", "bad \x1b")
    assert problem_lines(problem, {"o.toml": "模\x1b\tx!"}) == [
        "o.toml:1:5: bad \\x1b",
        "    模\\x1b\tx!",
        "          \t ^",
    ]


def test_wide_and_odd_names_keep_the_columns() -> None:
    """Columns line up on a terminal with names of any script, and with controls in them."""
    assert table(("A", "B"), [("模型", "x"), ("a\x1bb", "y")]) == [
        "A       B",
        "模型    x",
        "a\\x1bb  y",
    ]


def test_events_and_values_cannot_steer_the_terminal() -> None:
    """Whatever a message, a key or a consequence holds is printed as text."""
    odd = "a\x1b\x9b"
    event = Event(seq=1, time=TIME, type="Normal", reason="R", message=odd, model=odd)
    plan = PlanResult(True, [], [Change(odd, odd, odd, "live")], [odd])
    values = [OriginValue(odd, odd)]
    lines = [event_line(event), *plan_lines(plan), *config_lines(values, origin=False)]
    lines += config_lines(values, origin=True)
    assert all(line.isprintable() for line in plain(lines))


def test_a_problem_without_a_place_is_its_message() -> None:
    """A problem of a whole file has no line, one of no file has its key, or not even that."""
    assert problem_lines(Problem("o.toml", 0, 0, "", "may be written by others")) == [
        "o.toml: may be written by others"
    ]
    unwritten = Problem("", 0, 0, 'models."a".ttl', "is no duration")
    assert problem_lines(unwritten) == ['models."a".ttl: is no duration']
    assert problem_lines(Problem("", 0, 0, "", "odd")) == ["odd"]


def test_a_plan_is_in_order_of_models_and_classes() -> None:
    """Changes stand per model, then by reload class; what follows from them comes after."""
    changes = [
        Change('models."B".ttl', "30m", None, "live", "B"),
        Change('models."B".max_memory', None, "8GB", "drain", "B"),
        Change("server.listen", "a:1", ["a:1", "b:2"], "rebind"),
    ]
    result = PlanResult(True, [], changes, ["B is replaced when its requests have ended"])
    assert plain(plan_lines(result)) == [
        "MODEL  RELOAD  KEY                    OLD    NEW",
        '-      rebind  server.listen          "a:1"  ["a:1", "b:2"]',
        'B      drain   models."B".max_memory  -      "8GB"',
        'B      live    models."B".ttl         "30m"  -',
        "B is replaced when its requests have ended",
    ]


def test_an_empty_plan_says_so() -> None:
    """Nothing to change is one plain line."""
    assert plan_lines(PlanResult(True, [], [])) == ["no changes"]


def test_requests_stand_in_a_table() -> None:
    """A request shows where it stands, in tokens."""
    request = RequestStatus(
        request_id="r1",
        model="M",
        api="chat",
        status="prefill",
        prompt_tokens=100,
        computed_tokens=64,
        age_s=1.5,
    )
    assert request_rows([request]) == [
        "REQUEST  MODEL  API   STATUS   PROMPT  COMPUTED  OUTPUT  AGE",
        "r1       M      chat  prefill  100     64        0       1s",
    ]


def test_an_event_is_one_line() -> None:
    """Time, type, reason, model and message, in this order."""
    event = Event(
        seq=1, time="2026-01-02T03:04:05Z", type="Warning", reason="LoadFailed", message="no disk"
    )
    assert click.unstyle(event_line(event)) == (
        "2026-01-02T03:04:05Z  Warning  LoadFailed            -  no disk"
    )


def test_config_names_origins_on_request() -> None:
    """Values in force, alone or with the file and line that decided each."""
    values = [OriginValue("a", "x", "o.toml", 3), OriginValue("b", 5), OriginValue("c", None)]
    assert config_lines(values, origin=False) == ['a = "x"', "b = 5", "c = -"]
    assert config_lines(values, origin=True) == [
        "KEY  VALUE  ORIGIN",
        'a    "x"    o.toml:3',
        "b    5      default",
        "c    -      default",
    ]
