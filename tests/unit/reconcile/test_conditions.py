"""What status says, derived from what is wanted, seen and planned."""

from __future__ import annotations

import pytest

from omlxd.reconcile.conditions import (
    Condition,
    daemon_conditions,
    engine_conditions,
    servable,
    transition,
)
from omlxd.reconcile.plan import plan
from omlxd.reconcile.state import Desired, EngineObserved, Observed
from tests.unit.reconcile.build import NOW, OTHER_LIVE, desired, engine, load_of, observed, spec


def _of_engine(wanted: Desired, seen: Observed, model: str = "A") -> dict[str, Condition]:
    made = plan(wanted, seen, NOW)
    return {c.type: c for c in engine_conditions(model, wanted, seen, made)}


def _of_daemon(wanted: Desired, seen: Observed) -> dict[str, Condition]:
    return {c.type: c for c in daemon_conditions(wanted, seen, plan(wanted, seen, NOW))}


@pytest.mark.parametrize(
    ("seen", "status", "reason"),
    [
        (engine("absent"), "False", "NotLoaded"),
        (engine("starting"), "False", "Starting"),
        (engine("loading"), "False", "Loading"),
        (engine("ready"), "True", "Serving"),
        (engine("draining", in_flight=1), "False", "Draining"),
        (engine("stopping"), "False", "Stopping"),
        (engine("backoff"), "False", "BackingOff"),
        (engine("failed", failure_reason="BadFiles"), "False", "BadFiles"),
    ],
)
def test_ready_has_a_reason_in_every_phase(seen: EngineObserved, status: str, reason: str) -> None:
    """Ready is true in phase ready only, and false for a reason of its own elsewhere."""
    ready = _of_engine(desired(spec("A")), observed(A=seen))["Ready"]
    assert (ready.status, ready.reason) == (status, reason)


def test_ready_carries_the_last_failure() -> None:
    """Someone who asks why it is not ready reads what happened."""
    assert _of_engine(desired(spec("A")), observed(A=engine("backoff")))["Ready"].message == "boom"


def test_admitted_tells_waiting_from_hopeless() -> None:
    """Unknown if unwanted, true with memory, false while it waits or when it cannot fit."""
    small, large = spec("A", pin=True, estimate_bytes=60), spec("A", estimate_bytes=200)
    busy = engine("ready", "B", in_flight=1, footprint_bytes=60)
    waits = engine("absent", waiting=1)
    cases = [
        (desired(spec("A")), observed(), ("Unknown", "NotWanted")),
        (desired(small), observed(A=engine("loading")), ("True", "HoldsMemory")),
        (desired(small, spec("B")), observed(B=busy), ("False", "WaitsForRoom")),
        (desired(small), observed(A=engine("backoff")), ("False", "BackingOff")),
        (desired(large), observed(A=waits), ("False", "CannotFit")),
    ]
    for wanted, seen, expected in cases:
        admitted = _of_engine(wanted, seen)["Admitted"]
        assert (admitted.status, admitted.reason) == expected


def test_up_to_date_follows_both_kinds_of_settings() -> None:
    """False while a replacement or a hand-over of settings is still due."""
    seen = observed(A=engine("loading", in_flight=1))
    newer = spec("A", load=load_of("A", block_tokens=32))
    reasons = [
        _of_engine(desired(wanted), seen)["UpToDate"].reason
        for wanted in (spec("A"), spec("A", live=OTHER_LIVE), newer)
    ]
    assert reasons == ["SettingsInForce", "SettingsPending", "ReplacementPending"]
    assert _of_engine(desired(newer), observed())["UpToDate"].reason == "NotLoaded"


def test_crash_loop_is_told_from_single_deaths() -> None:
    """Only a loop is true; a death before is told, none is told too."""
    loop = engine("failed", failure_reason="CrashLoop", failure="died 5 times")
    found = [
        _of_engine(desired(spec("A")), observed(A=seen))["CrashLoop"]
        for seen in (loop, engine("backoff"), engine("ready", deaths=(1.0,)), engine("ready"))
    ]
    assert [(c.status, c.reason, c.message) for c in found] == [
        ("True", "CrashLoop", "died 5 times"),
        ("False", "DiedBefore", "1 deaths, the last: boom"),
        ("False", "DiedBefore", "1 deaths, the last: it recovered"),
        ("False", "NoDeaths", ""),
    ]


def test_servable_repeats_why_not() -> None:
    """The reason of discovery becomes the message."""
    assert servable(True, "").status == "True"
    assert servable(False, "the folder has no config.json").message.endswith("no config.json")


@pytest.mark.parametrize(
    ("wanted", "seen", "status", "reason", "message"),
    [
        (desired(spec("A")), observed(), "True", "NothingPinned", ""),
        (desired(spec("A", pin=True)), observed(A=engine("ready")), "True", "AllPinsReady", ""),
        (
            desired(spec("A", pin=True), spec("B", pin=True)),
            observed(A=engine("loading")),
            "False",
            "PinsNotReady",
            "A is loading, B is absent",
        ),
        (desired(), observed(stopping=True), "False", "ShuttingDown", ""),
    ],
)
def test_the_daemon_is_ready_when_every_pin_is(
    wanted: Desired, seen: Observed, status: str, reason: str, message: str
) -> None:
    """Ready names the pinned models that are not."""
    ready = _of_daemon(wanted, seen)["Ready"]
    assert (ready.status, ready.reason, ready.message) == (status, reason, message)


@pytest.mark.parametrize(
    ("wanted", "seen", "status", "reason"),
    [
        (desired(spec("A", pin=True)), observed(A=engine("ready")), "True", "Settled"),
        (desired(spec("A", pin=True)), observed(), "False", "Converging"),
        (desired(spec("A", pin=True)), observed(A=engine("loading")), "False", "Converging"),
        (desired(spec("A", pin=True)), observed(A=engine("backoff")), "False", "Waiting"),
        (desired(spec("A", pin=True)), observed(A=engine("failed")), "False", "EnginesFailed"),
    ],
)
def test_reconciled_means_nothing_is_left_to_do(
    wanted: Desired, seen: Observed, status: str, reason: str
) -> None:
    """True only in a settled world without failed engines."""
    reconciled = _of_daemon(wanted, seen)["Reconciled"]
    assert (reconciled.status, reconciled.reason) == (status, reason)


def test_memory_pressure_shows_the_sum() -> None:
    """Above the limit, waiting for room, blocks cut short, or none of it: with the figures."""
    busy = engine("ready", footprint_bytes=60, in_flight=1)
    waits = engine("absent", waiting=1)
    wanted = desired(spec("A"), spec("B", estimate_bytes=60))
    cases = [
        (observed(A=busy), ("False", "WithinLimit", "60B of 100B")),
        (observed(A=busy, base_bytes=41), ("True", "AboveLimit", "101B of 100B")),
        (
            observed(A=busy, hot_room_bytes=7),
            ("True", "HotShrunk", "60B of 100B; KV blocks of all engines may take 7B"),
        ),
        (
            observed(A=busy, base_bytes=41, hot_room_bytes=7),
            ("True", "AboveLimit", "101B of 100B; KV blocks of all engines may take 7B"),
        ),
        (observed(A=busy, B=waits), ("True", "ModelsWaitForRoom", "60B of 100B; B")),
    ]
    for seen, expected in cases:
        pressure = _of_daemon(wanted, seen)["MemoryPressure"]
        assert (pressure.status, pressure.reason, pressure.message) == expected


def test_transition_keeps_the_time_of_an_unchanged_status() -> None:
    """A new reason alone keeps the time; a new status, or a first sight, sets it."""
    old = [Condition("Ready", "True", "Serving", "", "10:00"), Condition("Gone", "True", "X")]
    new = [
        Condition("Ready", "True", "Other", "now"),
        Condition("Admitted", "False", "CannotFit"),
    ]
    first, second = transition(old, new, "11:00")
    assert (first.reason, first.message, first.last_transition_time) == ("Other", "now", "10:00")
    assert second.last_transition_time == "11:00"
    (flipped,) = transition([first], [Condition("Ready", "False", "NotLoaded")], "12:00")
    assert flipped.last_transition_time == "12:00"
