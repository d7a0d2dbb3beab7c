"""What `connect` does: gathers the facts, then prints, writes or puts back."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from omlxctl import exits
from omlxctl.connectclients import CLIENTS, KEY_VARIABLE, Setup, setup_for
from omlxctl.connectfacts import Facts, facts_about
from omlxctl.connectsources import find_key, find_places, served_by
from omlxctl.connectwrite import Outcome, carry_out, prepare, rendered, undo
from omlxctl.exits import CtlError
from omlxctl.target import Target
from omlxctl.text import safe

API_VERSION = 1
NO_KEY_KNOWN = (
    f"omlxd asks for a key, and none of server.api_keys can be read here; set {KEY_VARIABLE} to one"
)


def put_back(target: Target, client: str) -> None:
    """--undo: the client's files as they were before the first write."""
    paths = CLIENTS[client].files(find_places(os.environ, Path.home()))
    _tell(target, client, undo(paths, client))


def point(target: Target, client: str, model: str | None, *, write: bool) -> None:
    """Prints what the client needs or, with `write`, puts it into its files."""
    facts = facts_about(served_by(target), model)
    if facts.needs_key:
        facts = replace(facts, key=find_key(target))
    setup = setup_for(client, facts, find_places(os.environ, Path.home()))
    outcomes = _write(client, facts, setup) if write else None
    if target.json:
        click.echo(json.dumps(_document(client, facts, setup, outcomes), indent=2))
        return
    if outcomes is None:
        _print(setup)
    else:
        _tell(target, client, outcomes)
    _print_env(setup)
    for note in _notes(facts, setup):
        click.echo(f"omlxctl: {safe(note)}", err=True)
    click.echo(f"start it with: {setup.start}", err=True)


def _write(client: str, facts: Facts, setup: Setup) -> list[Outcome]:
    """All files or, where one cannot be edited, none."""
    if not setup.files:
        raise CtlError(
            f"{CLIENTS[client].title} reads this from its environment only, so there is no file to "
            "write",
            exit_code=exits.USAGE,
            hint=f'for this shell: eval "$(omlxctl connect {client})"\n'
            f"  for every one: omlxctl connect {client} >> ~/.zshrc",
        )
    if not facts.key:
        raise CtlError(f"nothing was written: {NO_KEY_KNOWN}")
    edits = [prepare(file, private=facts.needs_key) for file in setup.files]
    return [carry_out(edit) for edit in edits]


def _print(setup: Setup) -> None:
    for file in setup.files:
        click.echo(f"# {safe(str(file.path))}", err=True)
        click.echo(rendered(file), nl=False)


def _print_env(setup: Setup) -> None:
    if setup.env:
        click.echo("# environment", err=True)
    for line in _exports(setup):
        click.echo(line)


def _exports(setup: Setup) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in setup.env.items()]


def _notes(facts: Facts, setup: Setup) -> list[str]:
    return [*setup.notes, *([] if facts.key else [NO_KEY_KNOWN])]


def _tell(target: Target, client: str, outcomes: Sequence[Outcome]) -> None:
    if target.json:
        document = {"api_version": API_VERSION, "client": client, "files": _listed(outcomes)}
        click.echo(json.dumps(document, indent=2))
        return
    for outcome in outcomes:
        kept = f"; what was there first is {outcome.backup}" if outcome.backup else ""
        click.echo(safe(f"{outcome.path}: {outcome.result}{kept}"))


def _listed(outcomes: Sequence[Outcome]) -> list[dict[str, str | None]]:
    return [
        {
            "path": str(outcome.path),
            "result": outcome.result,
            "backup": str(outcome.backup) if outcome.backup else None,
        }
        for outcome in outcomes
    ]


def _document(
    client: str, facts: Facts, setup: Setup, outcomes: Sequence[Outcome] | None
) -> dict[str, object]:
    """With --write, `files` has what became of each; else the text that it needs."""
    texts = [{"path": str(file.path), "text": rendered(file)} for file in setup.files]
    return {
        "api_version": API_VERSION,
        "client": client,
        "model": facts.model,
        "url": facts.url,
        "context": facts.context,
        "max_output": facts.max_output,
        "needs_key": facts.needs_key,
        "files": texts if outcomes is None else _listed(outcomes),
        "env": dict(setup.env),
        "start": setup.start,
        "notes": _notes(facts, setup),
    }
