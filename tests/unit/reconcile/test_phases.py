"""The phase table: every move it has, and no other."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from omlxd.reconcile.phases import (
    TRANSITIONS,
    WITH_WORKER,
    InvalidTransition,
    broken_invariants,
    move,
)
from omlxd.reconcile.state import EngineObserved, Phase
from tests.unit.reconcile.build import NOW, engine

PHASES: tuple[Phase, ...] = get_args(Phase)


def test_table_names_every_phase() -> None:
    """The table has a row for each phase and leads to known phases only."""
    assert set(TRANSITIONS) == set(PHASES)
    assert set().union(*TRANSITIONS.values()) == set(PHASES)


@pytest.mark.parametrize("phase", sorted(WITH_WORKER))
def test_any_worker_can_die(phase: Phase) -> None:
    """Every phase with a worker leads to backoff and to failed."""
    assert {"backoff", "failed"} <= TRANSITIONS[phase]


@pytest.mark.parametrize(("phase", "to"), list(product(PHASES, PHASES)))
def test_move_keeps_to_the_table(phase: Phase, to: Phase) -> None:
    """A move of the table gives the phase and its time; any other raises and changes nothing."""
    before = engine(phase)
    if to in TRANSITIONS[phase]:
        after = move(before, to, NOW)
        assert (after.phase, after.phase_since) == (to, NOW)
    else:
        with pytest.raises(
            InvalidTransition, match=f"no transition from {phase} to {to}"
        ) as caught:
            move(before, to, NOW)
        assert (caught.value.phase, caught.value.to) == (phase, to)
        assert before == engine(phase)


def test_invalid_transition_names_the_model() -> None:
    """The error carries the model of the worker it has or last had."""
    for phase in ("ready", "failed"):
        with pytest.raises(InvalidTransition) as caught:
            move(engine(phase, "Qwen"), "starting", NOW)
        assert caught.value.model == "Qwen"


def test_broken_invariants_are_named() -> None:
    """An engine that cannot be is told apart, rule by rule."""
    broken = broken_invariants(EngineObserved(phase="backoff", in_flight=1, waiting=-1))
    assert [line.partition(": ")[2] for line in broken] == [
        "counts are never negative",
        "requests are in flight in a worker only",
        "backoff has a time to try again, and only backoff",
        "what failed says so",
    ]
