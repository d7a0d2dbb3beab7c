"""The rules of `plan`, one table row each: what is wanted and seen → what is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from omlxd.reconcile.plan import plan
from omlxd.reconcile.state import (
    Action,
    ConfigureEngine,
    DrainEngine,
    KeepSpares,
    Observed,
    Plan,
    RefuseWaiting,
    ResumeEngine,
    RetryEngine,
    StartEngine,
    StopEngine,
)
from tests.unit.reconcile.build import (
    LIVE,
    NOW,
    OTHER_LIVE,
    desired,
    engine,
    load_of,
    observed,
    spec,
)

NEW_LOAD = load_of("A", block_tokens=128)


def _start(reason: str) -> StartEngine:
    return StartEngine("A", load_of("A"), LIVE, 10, reason)


@pytest.mark.parametrize(
    ("wanted", "seen", "actions"),
    [
        # who comes
        ({"pin": True}, None, [_start("pin")]),
        ({"preload": True}, None, [_start("preload")]),
        ({"preload": True}, engine("absent", preloaded=True), []),
        ({}, None, []),
        ({}, engine("absent", waiting=1), [_start("request")]),
        ({}, engine("absent", load_requested=True), [_start("load")]),
        ({"pin": True}, engine("absent", waiting=1, load_requested=True), [_start("pin")]),
        ({"pin": True}, engine("starting"), []),
        ({"pin": True}, engine("stopping"), []),
        # live settings
        ({"live": OTHER_LIVE}, engine("ready"), [ConfigureEngine("A", OTHER_LIVE)]),
        ({"live": OTHER_LIVE}, engine("ready", in_flight=1), [ConfigureEngine("A", OTHER_LIVE)]),
        ({"live": OTHER_LIVE}, engine("loading"), []),
        ({"live": OTHER_LIVE}, engine("draining", in_flight=1, leaving="turn"), []),
        # load settings
        ({"load": NEW_LOAD}, engine("ready"), [StopEngine("A", "settings")]),
        ({"load": NEW_LOAD}, engine("loading"), [StopEngine("A", "settings")]),
        ({"load": NEW_LOAD}, engine("ready", in_flight=1), [DrainEngine("A", "settings")]),
        ({"load": NEW_LOAD, "live": OTHER_LIVE}, engine("ready"), [StopEngine("A", "settings")]),
        ({"load": NEW_LOAD, "pin": True}, engine("ready"), [StopEngine("A", "settings")]),
        ({"load": NEW_LOAD}, engine("draining", in_flight=1), []),
        ({"load": NEW_LOAD}, engine("draining"), [StopEngine("A", "settings")]),
        ({}, engine("draining", leaving="unload"), [StopEngine("A", "unload")]),
        # what it drained for is as it was
        ({}, engine("draining", in_flight=1), [ResumeEngine("A")]),
        ({}, engine("draining"), [ResumeEngine("A")]),
        ({}, engine("draining", in_flight=1, leaving="removed"), [ResumeEngine("A")]),
        ({"load": NEW_LOAD}, engine("draining", in_flight=1, leaving="removed"), []),
        ({}, engine("draining", in_flight=1, leaving="unload"), []),
        ({}, engine("draining", in_flight=1, leaving="turn"), []),
        ({}, engine("draining", in_flight=1, leaving="shutdown"), []),
        ({}, engine("draining", in_flight=1, loaded_at=None), []),
        ({}, engine("draining", loaded_at=None), [StopEngine("A", "settings")]),
        ({}, engine("stopping"), []),
        # TTL
        ({"ttl_s": 1.0}, engine("ready"), [StopEngine("A", "ttl")]),
        ({"ttl_s": 1.5}, engine("ready"), []),
        ({"ttl_s": 1.0, "pin": True}, engine("ready"), []),
        ({"ttl_s": 1.0}, engine("ready", in_flight=1), []),
        ({"ttl_s": 1.0}, engine("ready", waiting=1), []),
        ({"ttl_s": 0.0}, engine("loading"), []),
        # unload
        ({}, engine("ready", unload_requested=True), [StopEngine("A", "unload")]),
        ({}, engine("loading", unload_requested=True), [StopEngine("A", "unload")]),
        ({}, engine("ready", unload_requested=True, in_flight=1), [DrainEngine("A", "unload")]),
        # back-off and failure
        ({"pin": True}, engine("backoff"), []),
        ({"pin": True}, engine("backoff", retry_at=NOW), [RetryEngine("A")]),
        ({"load": NEW_LOAD}, engine("backoff"), [RetryEngine("A")]),
        ({"pin": True}, engine("failed"), []),
        ({"load": NEW_LOAD}, engine("failed"), [RetryEngine("A")]),
        ({"load": load_of("A", files="new")}, engine("failed"), [RetryEngine("A")]),
        ({}, engine("backoff", waiting=1), []),
        ({"load": NEW_LOAD}, engine("failed", waiting=1), [RetryEngine("A")]),
    ],
)
def test_rules_for_one_engine(wanted: dict[str, Any], seen: Any, actions: list[Action]) -> None:
    """One declared engine in one state leads to exactly these actions."""
    seen_by_daemon = observed() if seen is None else observed(A=seen)
    assert list(plan(desired(spec("A", **wanted)), seen_by_daemon, NOW).actions) == actions


@pytest.mark.parametrize(
    ("seen", "actions"),
    [
        (engine("ready"), [StopEngine("A", "removed")]),
        (engine("starting"), [StopEngine("A", "removed")]),
        (engine("ready", in_flight=1), [DrainEngine("A", "removed")]),
        (engine("stopping"), []),
        (engine("failed"), [RetryEngine("A")]),
        (engine("backoff"), [RetryEngine("A")]),
    ],
)
def test_rules_for_an_engine_that_is_no_longer_wanted(seen: Any, actions: list[Action]) -> None:
    """A model that left the desired state is drained, stopped, and forgotten."""
    assert list(plan(desired(), observed(A=seen), NOW).actions) == actions


@pytest.mark.parametrize("phase", ["starting", "loading"])
def test_a_start_has_a_deadline(phase: str) -> None:
    """Loading is bounded from the worker's start on, also with requests handed to it."""
    wanted = desired(spec("A"), start_timeout_s=600.0)
    late = engine(phase, started_at=NOW - 600, phase_since=NOW - 1)
    early = engine(phase, started_at=NOW - 590)
    assert plan(wanted, observed(A=late), NOW).actions == (StopEngine("A", "start_timeout"),)
    assert plan(wanted, observed(A=early), NOW) == Plan(requeue_after=10.0)


def test_a_drain_of_a_load_keeps_the_deadline_of_the_start() -> None:
    """An engine that drains before it is loaded still cannot hang for ever."""
    stuck = engine(
        "draining", in_flight=1, loaded_at=None, started_at=NOW - 600, footprint_bytes=10
    )
    done = replace(stuck, loaded_at=NOW - 500, leaving="unload")
    assert plan(desired(spec("A")), observed(A=stuck), NOW).actions == (
        StopEngine("A", "start_timeout"),
    )
    assert plan(desired(spec("A")), observed(A=done), NOW).actions == ()


def test_a_draining_engine_wanted_again_goes_first() -> None:
    """Requests that come during an unload wait for the old worker's end, then a counted load."""
    going = engine("draining", in_flight=1, waiting=2, leaving="unload")
    assert plan(desired(spec("A")), observed(A=going), NOW) == Plan(
        waits={"A": "its old worker still runs 1 requests"}
    )
    gone = engine("absent", waiting=2)
    assert plan(desired(spec("A")), observed(A=gone), NOW).actions == (_start("request"),)


def test_a_drain_is_not_taken_back_during_shutdown() -> None:
    """An engine that drained for its settings ends with the daemon though they came back."""
    going = observed(A=engine("draining", in_flight=1), stopping=True)
    assert plan(desired(spec("A")), going, NOW).actions == ()


def test_failed_refuses_whoever_waits_with_the_reason_and_the_way_out() -> None:
    """A failed engine answers at once; nothing is loaded for it."""
    failed = engine("failed", waiting=3, failure="no config.json")
    (refusal,) = plan(desired(spec("A")), observed(A=failed), NOW).actions
    assert refusal == RefuseWaiting(
        "A",
        "model_unavailable",
        "A cannot be loaded: no config.json; change its settings or files, "
        "or try again with: omlxctl load A",
    )


@pytest.mark.parametrize("phase", ["absent", "ready", "draining", "stopping", "failed", "backoff"])
def test_requests_for_a_removed_model_are_refused(phase: str) -> None:
    """In whatever phase its engine is, nobody waits for what will not come."""
    actions = plan(desired(), observed(A=engine(phase, waiting=1)), NOW).actions
    refusals = [action for action in actions if isinstance(action, RefuseWaiting)]
    assert [(action.model, action.code) for action in refusals] == [("A", "model_not_found")]


def test_shutdown_starts_nothing_refuses_and_lets_streams_finish() -> None:
    """When the daemon stops: no starts, no spares, idle engines end, busy ones drain."""
    seen = observed(
        A=engine("ready"),
        B=engine("ready", "B", in_flight=1, waiting=1),
        C=engine("absent", waiting=1),
        stopping=True,
        spares=1,
    )
    wanted = desired(spec("A", pin=True), spec("B"), spec("C"), spec("D", pin=True))
    wait = "omlxd is shutting down; {} takes no new requests"
    assert plan(wanted, seen, NOW).actions == (
        RefuseWaiting("B", "model_unavailable", wait.format("B")),
        RefuseWaiting("C", "model_unavailable", wait.format("C")),
        StopEngine("A", "shutdown"),
        DrainEngine("B", "shutdown"),
        KeepSpares(0),
    )


@pytest.mark.parametrize(
    ("spares", "seen", "kept"),
    [
        (0, {}, [KeepSpares(2)]),
        (2, {}, []),
        (3, {}, [KeepSpares(2)]),
        (0, {"A": engine("loading")}, []),
        (3, {"A": engine("starting")}, [KeepSpares(2)]),
        (0, {"A": engine("ready")}, [KeepSpares(2)]),
        (1, {"A": engine("absent", waiting=1)}, []),
    ],
)
def test_spares_follow_the_number_asked_for_but_not_during_a_load(
    spares: int, seen: dict[str, Any], kept: list[Action]
) -> None:
    """Spares are made up when nothing loads or is about to, and cut down at any time."""
    wanted = desired(spec("A"), spare_workers=2)
    actions = plan(wanted, observed(spares=spares, **seen), NOW).actions
    assert [action for action in actions if isinstance(action, KeepSpares)] == kept


def test_look_again_at_the_next_time_driven_change() -> None:
    """requeue_after is the nearest of TTLs, retries and start deadlines; None if there is none."""
    wanted = desired(spec("A", ttl_s=50.0), spec("B"), spec("C"), start_timeout_s=31.0)
    ttl = observed(A=engine("ready"))
    retry = observed(A=engine("ready"), B=engine("backoff", "B", retry_at=NOW + 20))
    deadline = observed(A=engine("ready"), C=engine("loading", "C"))
    assert plan(wanted, ttl, NOW).requeue_after == 49.0
    assert plan(wanted, retry, NOW).requeue_after == 20.0
    assert plan(wanted, deadline, NOW).requeue_after == 30.0
    assert plan(wanted, observed(B=engine("ready", "B")), NOW).requeue_after is None


def test_backoff_says_why_a_wanted_engine_waits() -> None:
    """Someone who waits for an engine in backoff reads its last failure."""
    waits = plan(desired(spec("A", pin=True)), observed(A=engine("backoff")), NOW).waits
    assert waits == {"A": "is tried again soon: boom"}


def test_actions_do_not_depend_on_the_order_of_mappings() -> None:
    """The same world in another order gives the same plan."""
    specs = [spec(name, pin=name in "BD", live=OTHER_LIVE) for name in "ABCDE"]
    engines = {"A": engine("ready"), "B": engine("failed", "B"), "C": engine("ready", "C")}
    turned = dict(reversed(engines.items()))
    first = plan(desired(*specs), Observed(engines=engines), NOW)
    second = plan(desired(*reversed(specs)), Observed(engines=turned), NOW)
    assert first.actions == second.actions
    assert len(first.actions) == 3
