"""pin, unpin, load, unload, set, unset: what a model should be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from omlxctl.assignments import parse_assignments, parse_key
from omlxctl.client import Client, decode
from omlxctl.names import model_path
from omlxctl.options import daemon_options, duration, model_argument
from omlxctl.target import Target, emit, pass_target
from omlxctl.text import safe
from omlxctl.verdicts import NamedModel, Verdict, judge_generation
from omlxctl.waiting import WAIT_S, wait_for
from omlxd.control.wire import Accepted, Event, SettingsPatch, Status

F = TypeVar("F", bound=Callable[..., Any])


def _bound(ctx: click.Context, param: click.Parameter, text: str | None) -> float:
    """Seconds; only together with --wait, which is read first."""
    if text is None:
        return WAIT_S
    if not ctx.params["wait"]:
        raise click.UsageError("--timeout goes with --wait")
    return duration(text)


def _wait_options(help_text: str) -> Callable[[F], F]:
    def add(command: F) -> F:
        timeout = click.option(
            "--timeout",
            metavar="DURATION",
            callback=_bound,
            help="Give up waiting after this time [default: 10m].",
        )
        wait = click.option("--wait", is_flag=True, is_eager=True, help=help_text)
        return wait(timeout(command))

    return add


@click.command()
@model_argument()
@_wait_options("Come back when the model is ready.")
@daemon_options
@pass_target
def pin(target: Target, model: str, wait: bool, timeout: float) -> None:
    """Keep MODEL loaded (set MODEL pin=true)."""
    client = target.client()
    accepted = _patch(target, client, SettingsPatch(model, set={"pin": True}))
    if wait:
        wait_for(client, _in_force(accepted, NamedModel(model), "ready"), timeout_s=timeout)


@click.command()
@model_argument()
@_wait_options("Come back when the change is in force.")
@daemon_options
@pass_target
def unpin(target: Target, model: str, wait: bool, timeout: float) -> None:
    """Let MODEL go again (set MODEL pin=false).

    It stays until it has been idle for its ttl.
    """
    client = target.client()
    accepted = _patch(target, client, SettingsPatch(model, set={"pin": False}))
    if wait:
        generation = accepted.generation
        wait_for(client, lambda status: judge_generation(status, generation), timeout_s=timeout)


@click.command()
@model_argument()
@_wait_options("Come back when the model is ready.")
@daemon_options
@pass_target
def load(target: Target, model: str, wait: bool, timeout: float) -> None:
    """Load MODEL now.

    This counts as a request: its ttl starts when it is loaded. Nothing is stored.
    """
    client = target.client()
    before = _last_event(client) if wait else 0
    accepted = _act(target, client, model, "load")
    if wait:
        named = NamedModel(model)
        reached = _in_force(accepted, named, "ready")

        def judge(status: Status) -> Verdict:
            verdict = reached(status)
            # With a short ttl it may be gone again before it was seen.
            was_loaded = not verdict.done and _has_loaded(client, named.id, since=before)
            return Verdict(True) if was_loaded else verdict

        wait_for(client, judge, timeout_s=timeout)


@click.command()
@model_argument()
@_wait_options("Come back when the model is gone.")
@daemon_options
@pass_target
def unload(target: Target, model: str, wait: bool, timeout: float) -> None:
    """Unload MODEL.

    It finishes what it runs first. A pinned model is refused (exit code 6).
    """
    client = target.client()
    accepted = _act(target, client, model, "unload")
    if wait:
        wait_for(client, _in_force(accepted, NamedModel(model), "absent"), timeout_s=timeout)


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


def _act(target: Target, client: Client, model: str, action: str) -> Accepted:
    body = client.call("POST", model_path(model, action))
    accepted = decode(body, Accepted)
    _tell(target, body, accepted.message or f"{action} of {model} accepted")
    return accepted


def _tell(target: Target, body: bytes, sentence: str) -> None:
    if target.json:
        emit(body)
    else:
        click.echo(safe(sentence))


def _in_force(accepted: Accepted, named: NamedModel, goal: str) -> Callable[[Status], Verdict]:
    """Whether the model is in phase `goal` under the generation that carries the change."""

    def judge(status: Status) -> Verdict:
        in_force = judge_generation(status, accepted.generation)
        return named.judge(status, goal) if in_force.done else in_force

    return judge


def _events(client: Client) -> list[Event]:
    return [decode(line, Event) for line in client.lines("/v1/events")]


def _last_event(client: Client) -> int:
    return max((event.seq for event in _events(client)), default=0)


def _has_loaded(client: Client, model_id: str | None, *, since: int) -> bool:
    """Whether the model was loaded after event number `since`."""
    return any(
        event.seq > since and event.model == model_id and event.reason == "Loaded"
        for event in _events(client)
    )
