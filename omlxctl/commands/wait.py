"""wait: come back when it is so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import click
import msgspec

from omlxctl.options import daemon_options, duration, model_argument
from omlxctl.target import Target, emit, pass_target
from omlxctl.verdicts import PHASES, NamedModel, Verdict, judge_all, judge_daemon, note_idle
from omlxctl.waiting import WAIT_S, wait_for
from omlxd.control.wire import Status
from omlxd.units import format_duration


def _goal(text: str) -> str:
    """A phase, or the CamelCase type of a condition."""
    if text in PHASES or (text[:1].isupper() and text.isalnum()):
        return text
    raise click.BadParameter(
        f"{text!r} is neither a phase ({', '.join(PHASES)}) nor a condition such as Reconciled"
    )


@click.command()
@model_argument(required=False)
@click.option("--all", "every", is_flag=True, help="Every model that can be served.")
@click.option(
    "--for",
    "goal",
    type=_goal,
    metavar="WHAT",
    default="ready",
    help=f"{', '.join(PHASES)}, or a condition that must be True [default: ready].",
)
@click.option(
    "--timeout",
    type=duration,
    metavar="DURATION",
    default=format_duration(WAIT_S),
    help="Give up after this time [default: 10m].",
)
@daemon_options
@pass_target
def wait(target: Target, model: str | None, every: bool, goal: str, timeout: float) -> None:
    """Wait until a model or the daemon is ready.

    Without MODEL or --all: until every pinned model is ready. A daemon that is not there yet gets
    some seconds to come up. Exit code 5 is a time-out; a failed model ends the wait at once with 1.
    """
    if model and every:
        raise click.UsageError("give a MODEL or --all, not both")
    status = wait_for(target.client(), _judge(model, every, goal), timeout_s=timeout)
    if target.json:
        emit(msgspec.json.encode(status))


def _judge(model: str | None, every: bool, goal: str) -> Callable[[Status], Verdict]:
    if every:
        return lambda status: judge_all(status, goal)
    if model is None:
        return lambda status: judge_daemon(status, goal)
    named = NamedModel(model)

    def judge_named(status: Status) -> Verdict:
        verdict = named.judge(status, goal)
        return replace(verdict, note=note_idle(status, named.id) if goal == "ready" else "")

    return judge_named
