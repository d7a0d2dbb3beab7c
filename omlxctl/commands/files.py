"""validate, diff, apply, reload: omlx.toml and what it would change."""

from __future__ import annotations

from pathlib import Path

import click

from omlxctl import exits
from omlxctl.client import Client, decode
from omlxctl.configfiles import read_file, replace
from omlxctl.exits import CtlError
from omlxctl.options import daemon_options
from omlxctl.target import Target, emit, pass_target, read_stdin
from omlxctl.text import safe
from omlxctl.verdicts import judge_generation
from omlxctl.waiting import wait_for
from omlxd.control.wire import Accepted, PlanRequest, PlanResult

DEFAULTS_HOLD = "omlxd runs with its defaults, and with omlx.d, until there is one"
file_argument = click.argument("file", metavar="[FILE|-]", required=False)


@click.command()
@file_argument
@daemon_options
@pass_target
def validate(target: Target, file: str | None) -> int:
    """Check a configuration file.

    FILE is omlx.toml by default; the drop-ins in omlx.d beside it are checked with it. Works with
    the daemon down. Exit code 7 means that something is wrong.
    """
    import msgspec

    from omlxctl.configcheck import check
    from omlxctl.render import problem_lines

    path = Path(file) if file and file != "-" else target.config_path()
    text = _text(file, path) if file else read_file(path, if_missing=DEFAULTS_HOLD)
    found = check(path, text)
    if target.json:
        emit(msgspec.json.encode(found.status()))
    else:
        for problem in found.problems:
            click.echo("\n".join(problem_lines(problem, found.texts)))
        if not found.problems:
            click.echo(f"{safe(found.path)}: valid")
    return exits.INVALID if found.problems else exits.OK


@click.command()
@file_argument
@daemon_options
@pass_target
def diff(target: Target, file: str | None) -> int:
    """Say what saving FILE would change.

    FILE is omlx.toml as it is on disk by default. Exit code 0 means nothing, 1 that it differs.
    """
    path = target.config_path()
    text = _text(file, path)
    body = _plan(target.client(), text, path)
    plan = decode(body, PlanResult)
    if target.json:
        emit(body)
    elif plan.valid:
        from omlxctl.render import plan_lines

        click.echo("\n".join(plan_lines(plan)))
    _refuse_invalid(plan, file or str(path), {str(path): text})
    return exits.FAILED if plan.changes else exits.OK


@click.command()
@click.argument("file", metavar="FILE|-")
@daemon_options
@pass_target
def apply(target: Target, file: str) -> None:
    """Make FILE the omlx.toml in force.

    It is checked, put in place, reloaded and waited for. The file that was there is kept as
    omlx.toml.bak. A FILE with problems changes nothing (exit code 7), and so does a daemon that is
    not running (3).
    """
    client, path = target.client(), target.config_path()
    text = _text(file, path)
    _refuse_invalid(decode(_plan(client, text, path), PlanResult), file, {str(path): text})
    replace(path, text)
    _reload(target, client)


@click.command()
@daemon_options
@pass_target
def reload(target: Target) -> None:
    """Read omlx.toml and the drop-ins again.

    Comes back when they are in force.
    """
    _reload(target, target.client())


def _text(file: str | None, path: Path) -> str:
    """Of FILE, of standard input for "-", or else of the file in force."""
    return read_stdin() if file == "-" else read_file(Path(file) if file else path)


def _plan(client: Client, text: str, path: Path) -> bytes:
    return client.call("POST", "/v1/plan", PlanRequest(text, str(path)))


def _refuse_invalid(plan: PlanResult, file: str, texts: dict[str, str]) -> None:
    if plan.valid:
        return
    raise CtlError(
        f"{'standard input' if file == '-' else file} cannot be put in force",
        exit_code=exits.INVALID,
        problems=plan.problems,
        texts=texts,
    )


def _reload(target: Target, client: Client) -> None:
    body = client.call("POST", "/v1/reload")
    accepted = decode(body, Accepted)
    wait_for(client, lambda status: judge_generation(status, accepted.generation))
    if target.json:
        emit(body)
        return
    verdict = "in force" if accepted.changed else "unchanged"
    click.echo(safe(accepted.message) or f"generation {accepted.generation} {verdict}")
