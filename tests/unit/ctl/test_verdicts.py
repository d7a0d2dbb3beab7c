"""When a wait is over, and what it lacks."""

from __future__ import annotations

from typing import Any

import pytest

from omlxctl.verdicts import (
    FIRST_SCAN_S,
    PHASES,
    NamedModel,
    Verdict,
    judge_all,
    judge_daemon,
    judge_generation,
    judge_model,
    note_idle,
)
from omlxd.control.wire import Condition
from omlxd.errors import ModelNotFound
from tests.fakes.fake_control import TIME, a_model, a_status


def condition(kind: str, status: str, message: str = "") -> Condition:
    return Condition(kind, status, "Because", message, TIME)  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_is_reached_by_that_phase_only(phase: str) -> None:
    """A model in a phase is done for this phase and for no other."""
    status = a_status(a_model("A", phase=phase))
    assert [goal for goal in PHASES if judge_model(status, "A", goal).done] == [phase]


def test_what_is_missing_is_named_with_its_reason() -> None:
    """The daemon's reason goes into the sentence; else the message of a condition."""
    told = a_model("A", phase="absent", reason="waits for room")
    derived = a_model("A", phase="backoff", conditions=[condition("Ready", "False", "died")])
    assert judge_model(a_status(told), "A", "ready").why == "A is absent, not ready: waits for room"
    assert judge_model(a_status(derived), "A", "ready").why == "A is backoff, not ready: died"


def test_a_failed_model_is_hopeless() -> None:
    """Waiting does not help a failed model; it does help one in back-off."""
    failed = judge_model(a_status(a_model("A", phase="failed")), "A", "ready")
    backoff = judge_model(a_status(a_model("A", phase="backoff")), "A", "ready")
    assert (failed.hopeless, backoff.hopeless) == (True, False)


def test_a_model_that_vanishes() -> None:
    """A model that is no longer served is absent, and never ready."""
    assert judge_model(a_status(), "A", "absent").done
    assert judge_model(a_status(), "A", "ready") == Verdict(
        False, "A is no longer served", hopeless=True
    )


def test_a_condition_is_awaited_by_its_type() -> None:
    """A word that is no phase is a condition that must be True."""
    status = a_status(a_model("A", conditions=[condition("Ready", "True")]))
    waiting = a_status(a_model("A", conditions=[condition("Ready", "Unknown", "why")]))
    assert judge_model(status, "A", "Ready").done
    assert judge_model(waiting, "A", "Ready").why == "A has Ready=Unknown, Because: why"
    assert judge_model(status, "A", "Admitted").why == "A has no condition Admitted"


def test_all_leaves_out_what_cannot_be_served() -> None:
    """--all is every servable model."""
    broken = a_model("B", servable=False, reason="no weights")
    assert judge_all(a_status(a_model("A", phase="ready"), broken), "ready").done
    assert judge_all(a_status(a_model("A"), broken), "ready").why == "A is absent, not ready"


def test_a_hopeless_model_speaks_first() -> None:
    """Of several that are missing, the one that waiting cannot help ends the wait."""
    verdict = judge_all(a_status(a_model("A"), a_model("B", phase="failed")), "ready")
    assert (verdict.hopeless, verdict.why) == (True, "B is failed, not ready")


def test_the_daemon_is_ready_when_its_pins_are() -> None:
    """Unpinned models do not count; the daemon's own condition does."""
    pinned, other = a_model("A", pin=True, phase="ready"), a_model("B")
    assert judge_daemon(a_status(pinned, other), "ready").done
    assert not judge_daemon(a_status(a_model("A", pin=True), other), "ready").done
    not_ready = a_status(pinned, conditions=[condition("Ready", "False", "stopping")])
    assert judge_daemon(not_ready, "ready").why == "omlxd has Ready=False, Because: stopping"
    assert not judge_daemon(a_status(pinned), "Reconciled").done


def test_a_generation_is_in_force_when_observed() -> None:
    """A later generation in force is as good."""
    status = a_status(generation=5, observed_generation=4)
    assert judge_generation(status, 4).done
    assert judge_generation(status, 5) == Verdict(False, "generation 4 is in force, not 5")


def test_a_name_is_resolved_once() -> None:
    """The snapshot that first has the model decides which one is meant, for good."""
    named = NamedModel("M")
    assert named.judge(a_status(a_model("a/M")), "ready").why == "a/M is absent, not ready"
    both = a_status(a_model("a/M", phase="ready"), a_model("b/M"))
    assert named.judge(both, "ready").done
    assert named.judge(a_status(a_model("b/M")), "ready").hopeless


def test_an_unknown_model_is_an_error_but_not_at_once() -> None:
    """A daemon that has just come up may still find it; one that had time to look may not."""
    named = NamedModel("M")
    young = named.judge(a_status(uptime_s=FIRST_SCAN_S), "ready")
    assert (young.done, young.unknown, young.hopeless) == (False, True, False)
    with pytest.raises(ModelNotFound):
        named.judge(a_status(uptime_s=FIRST_SCAN_S + 1), "ready")


@pytest.mark.parametrize(
    ("model", "daemon"),
    [
        ({"phase": "loading"}, {}),
        ({"pin": True}, {}),
        ({"waiting": 1}, {}),
        ({"servable": False}, {}),
        ({"reason": "waits for room"}, {}),
        ({}, {"uptime_s": FIRST_SCAN_S}),
        ({}, {"generation": 4}),
    ],
)
def test_only_an_idle_model_is_noted(model: dict[str, Any], daemon: dict[str, Any]) -> None:
    """What is on its way, or may still be put on it, or cannot be loaded, gets no note."""
    assert note_idle(a_status(a_model("A")), "A").startswith("A is not loaded and nothing asks")
    assert note_idle(a_status(a_model("A", **model), **daemon), "A") == ""
    assert note_idle(a_status(), "A") == ""
