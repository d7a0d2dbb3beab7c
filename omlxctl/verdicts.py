"""Whether a snapshot of the daemon is what somebody waits for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omlxd.control.lookup import find_model
from omlxd.control.wire import Condition, ModelStatus, Status
from omlxd.errors import ModelNotFound

FIRST_SCAN_S = 5.0  # how long a daemon that has just come up may take to find its models
PHASES = ("ready", "absent", "backoff", "failed")  # those an engine can rest in


@dataclass(frozen=True, slots=True)
class Verdict:
    done: bool
    why: str = ""  # what is missing
    hopeless: bool = False  # it cannot come by waiting
    unknown: bool = False  # no such model yet, of a daemon that has just come up
    note: str = ""  # worth saying while it is waited for


def judge_model(status: Status, model_id: str, goal: str) -> Verdict:
    """`goal`: one of PHASES, or the type of a condition that must be True."""
    model = next((m for m in status.models if m.id == model_id), None)
    if model is None:
        return Verdict(goal == "absent", f"{model_id} is no longer served", hopeless=True)
    if goal not in PHASES:
        return _judge_condition(model.conditions, goal, model_id)
    if model.phase == goal:
        return Verdict(True)
    return Verdict(
        False,
        f"{model_id} is {model.phase}, not {goal}{_because(model)}",
        # A model that cannot be served yet may still be found or completed on disk.
        hopeless=model.phase == "failed",
    )


class NamedModel:
    """A model by whatever name; the first snapshot that has it says which one is meant."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._id: str | None = None

    @property
    def id(self) -> str | None:
        """None until a snapshot had it."""
        return self._id

    def judge(self, status: Status, goal: str) -> Verdict:
        """Raises ModelNotFound, but only of a daemon that has had time to look for models."""
        if self._id is None:
            try:
                self._id = find_model(status.models, self._name).id
            except ModelNotFound as error:
                if status.uptime_s > FIRST_SCAN_S:
                    raise
                return Verdict(False, error.message, unknown=True)
        return judge_model(status, self._id, goal)


def note_idle(status: Status, model_id: str | None) -> str:
    """What would load a model that nothing asks for; empty for every other one."""
    model = next((m for m in status.models if m.id == model_id), None)
    is_settled = status.uptime_s > FIRST_SCAN_S and status.observed_generation == status.generation
    if model is None or not is_settled or model.phase != "absent":
        return ""
    if model.pin or model.waiting or not model.servable or model.reason:
        return ""
    return (
        f"{model.id} is not loaded and nothing asks for it; "
        f"`omlxctl load {model.id}` would load it. Waiting goes on."
    )


def judge_all(status: Status, goal: str) -> Verdict:
    """Every model that can be served."""
    return _first_missing([judge_model(status, m.id, goal) for m in status.models if m.servable])


def judge_daemon(status: Status, goal: str) -> Verdict:
    """ "ready" is every pinned model ready; else the type of a condition of the daemon."""
    if goal != "ready":
        return _judge_condition(status.conditions, goal, "omlxd")
    pinned = [judge_model(status, m.id, "ready") for m in status.models if m.pin]
    own = [_judge_condition([c], "Ready", "omlxd") for c in status.conditions if c.type == "Ready"]
    return _first_missing([*pinned, *own])


def judge_generation(status: Status, generation: int) -> Verdict:
    """The plan for that generation is made and its live changes are in force."""
    observed = status.observed_generation
    return Verdict(observed >= generation, f"generation {observed} is in force, not {generation}")


def _first_missing(verdicts: Sequence[Verdict]) -> Verdict:
    missing = [verdict for verdict in verdicts if not verdict.done]
    missing.sort(key=lambda verdict: not verdict.hopeless)
    return missing[0] if missing else Verdict(True)


def _judge_condition(conditions: Sequence[Condition], goal: str, whose: str) -> Verdict:
    found = next((c for c in conditions if c.type == goal), None)
    if found is None:
        return Verdict(False, f"{whose} has no condition {goal}")
    detail = f"{found.reason}: {found.message}" if found.message else found.reason
    return Verdict(found.status == "True", f"{whose} has {goal}={found.status}, {detail}")


def _because(model: ModelStatus) -> str:
    """The daemon's reason; else the message of a condition that is not True."""
    details = [
        model.reason,
        *(c.message or c.reason for c in model.conditions if c.status != "True"),
    ]
    return next((f": {detail}" for detail in details if detail), "")
