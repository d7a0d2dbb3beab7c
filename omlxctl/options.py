"""Options and arguments that commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from omlxctl.client import Client
from omlxctl.exits import CtlError
from omlxctl.target import Target

F = TypeVar("F", bound=Callable[..., Any])
COMPLETION_TIMEOUT_S = 0.1  # for the connection and again for the answer


def _store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Into the one Target; the option given last in the line (the command's own) wins."""
    target = ctx.find_root().ensure_object(Target)
    if isinstance(value, Path):
        value = value.expanduser()
    if value:
        setattr(target, str(param.name), value)


def daemon_options(command: F) -> F:
    """--home, --socket and --json; taken before the command's name and after it."""
    folder = click.Path(path_type=Path)
    for option in (
        click.option(
            "--json", is_flag=True, callback=_store, expose_value=False, help="Print JSON."
        ),
        click.option(
            "--socket",
            metavar="PATH",
            type=folder,
            callback=_store,
            expose_value=False,
            help="Control socket of the daemon.",
        ),
        click.option(
            "--home",
            metavar="DIR",
            type=folder,
            callback=_store,
            expose_value=False,
            help="Home folder of the daemon [default: $OMLX_HOME or ~/.omlx].",
        ),
    ):
        command = option(command)
    return command


def duration(text: str) -> float:
    """An option's type: 30s, 5m, 1h or never, in seconds; never is infinity."""
    from omlxd.units import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return math.inf if seconds is None else seconds


def complete_model(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Model names for the shell: silent and quick, whatever the daemon does."""
    from omlxd.control.wire import ModelList

    target = ctx.find_root().ensure_object(Target)
    try:
        client = Client(target.socket_path(), timeout_s=COMPLETION_TIMEOUT_S)
        models = client.get("/v1/models", ModelList).models
    except CtlError:
        return []
    names = [name for model in models for name in (model.id, *model.aliases)]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def model_argument(*, required: bool = True) -> Callable[[F], F]:
    return click.argument("model", required=required, shell_complete=complete_model)
