"""pin, unpin, load, unload, set, unset: what a model should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from omlxctl.assignments import parse_assignments, parse_key
from omlxctl.client import Client, decode
from omlxctl.names import model_path
from omlxctl.options import daemon_options, model_argument
from omlxctl.target import Target, emit, pass_target
from omlxctl.verdicts import NamedModel, Verdict, judge_generation
from omlxctl.waiting import wait_for
from omlxd.control.wire import Accepted, SettingsPatch, Status

F = TypeVar("F", bound=Callable[..., Any])


def _wait_option(help_text: str) -> Callable[[F], F]:
    return click.option("--wait", is_flag=True, help=help_text)


@click.command()
@model_argument()
@_wait_option("Come back when the model is ready.")
@daemon_options
@pass_target
def pin(target: Target, model: str, wait: bool) -> None:
    """Keep MODEL loaded (set MODEL pin=true)."""
    client = target.client()
    accepted = _patch(target, client, SettingsPatch(model, set={"pin": True}))
    if wait:
        _wait(client, model, "ready", accepted.generation)


@click.command()
@model_argument()
@_wait_option("Come back when the change is in force.")
@daemon_options
@pass_target
def unpin(target: Target, model: str, wait: bool) -> None:
    """Let MODEL go again (set MODEL pin=false).

    It stays until it has been idle for its ttl.
    """
    client = target.client()
    accepted = _patch(target, client, SettingsPatch(model, set={"pin": False}))
    if wait:
        wait_for(client, lambda status: judge_generation(status, accepted.generation))


@click.command()
@model_argument()
@_wait_option("Come back when the model is ready.")
@daemon_options
@pass_target
def load(target: Target, model: str, wait: bool) -> None:
    """Load MODEL now.

    This counts as a request: its ttl starts when it is loaded. Nothing is stored.
    """
    _act(target, model, "load", goal="ready" if wait else None)


@click.command()
@model_argument()
@_wait_option("Come back when the model is gone.")
@daemon_options
@pass_target
def unload(target: Target, model: str, wait: bool) -> None:
    """Unload MODEL.

    It finishes what it runs first. A pinned model is refused (exit code 6).
    """
    _act(target, model, "unload", goal="absent" if wait else None)


@click.command("set")
@model_argument()
@click.argument("assignments", metavar="KEY=VALUE...", nargs=-1, required=True)
@daemon_options
@pass_target
def set_(target: Target, model: str, assignments: tuple[str, ...]) -> None:
    """Set keys of MODEL, as in omlx.toml.

    A VALUE is TOML; a bare word is a string: ttl=5m sampling.temperature=0.7. Written to
    omlx.d/90-omlxctl.toml by the daemon.
    """
    try:
        values = parse_assignments(assignments)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="KEY=VALUE") from error
    _patch(target, target.client(), SettingsPatch(model, set=values))


@click.command()
@model_argument()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@daemon_options
@pass_target
def unset(target: Target, model: str, keys: tuple[str, ...]) -> None:
    """Take back KEYs that set and pin wrote."""
    try:
        names = [parse_key(key) for key in keys]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="KEY") from error
    _patch(target, target.client(), SettingsPatch(model, unset=names))


def _patch(target: Target, client: Client, patch: SettingsPatch) -> Accepted:
    body = client.call("PATCH", "/v1/settings", patch)
    accepted = decode(body, Accepted)
    verdict = "accepted" if accepted.changed else "unchanged"
    _tell(target, body, accepted.message or f"{verdict} (generation {accepted.generation})")
    return accepted


def _act(target: Target, model: str, action: str, *, goal: str | None) -> None:
    client = target.client()
    body = client.call("POST", model_path(model, action))
    accepted = decode(body, Accepted)
    _tell(target, body, accepted.message or f"{action} of {model} accepted")
    if goal:
        _wait(client, model, goal, accepted.generation)


def _tell(target: Target, body: bytes, sentence: str) -> None:
    if target.json:
        emit(body)
    else:
        click.echo(sentence)


def _wait(client: Client, model: str, goal: str, generation: int) -> None:
    named = NamedModel(model)

    def judge(status: Status) -> Verdict:
        in_force = judge_generation(status, generation)
        return named.judge(status, goal) if in_force.done else in_force

    wait_for(client, judge)
