"""What `service` prints, and with which exit code it ends."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace

import click

from omlxctl import exits
from omlxctl.exits import CtlError
from omlxctl.servicedry import Rehearsal, ThoughtOf, lines_of
from omlxctl.serviceplist import LABEL
from omlxctl.servicerun import carry_out, prepare, refuse_root, user_name
from omlxctl.servicesteps import Command, Job, Outcome, Step
from omlxctl.serviceverbs import VERBS
from omlxctl.target import Target
from omlxctl.text import safe

API_VERSION = 1
NEED_IT_LOADED = ("uninstall", "stop", "restart")
# Of `service status`; other verbs that come back have done what they say.
CODES = {"running": exits.OK, "absent": exits.NO_SUCH_OBJECT}


def perform(target: Target, verb: str, *, dry: bool) -> int:
    """One verb: done on a Mac, told elsewhere or with `dry`; returns the exit code."""
    job, notes, do = prepare(target, needs_spec=verb == "install")
    is_mac = sys.platform == "darwin"
    if dry or not is_mac:
        if not is_mac and verb != "install":
            job = replace(job, on_disk=job.data)
        rehearsal = Rehearsal(do if is_mac else ThoughtOf(runs=verb in NEED_IT_LOADED))
        carry_out(VERBS[verb](job), rehearsal)
        _print_steps(target, verb, job, rehearsal.told)
        _print_notes(notes)
        if not dry:
            raise _no_launchd(verb)
        return exits.OK
    refuse_root(os.geteuid(), os.environ)
    outcome = carry_out(VERBS[verb](job), do)
    if target.json:
        click.echo(json.dumps(document(verb, job, outcome, notes), indent=2))
    else:
        click.echo(safe(told(outcome)))
        _print_notes((*notes, *outcome.notes))
    return CODES.get(outcome.status, exits.NOT_RUNNING) if verb == "status" else exits.OK


def _no_launchd(verb: str) -> CtlError:
    above = (
        "" if verb == "status" else f", and nothing was done; above is what {verb} does on a Mac"
    )
    return CtlError(
        f"this is not macOS, so there is no launchd{above}",
        hint="start it with `omlxd`, or from the service manager of this system",
    )


def told(outcome: Outcome) -> str:
    return outcome.told if outcome.pid is None else f"{outcome.told}, pid {outcome.pid}"


def document(
    verb: str, job: Job, outcome: Outcome, notes: tuple[str, ...] = ()
) -> dict[str, object]:
    """The stable form. `up_to_date`: the plist on disk is what omlx.toml asks for."""
    is_there = verb == "install" or (verb != "uninstall" and job.on_disk == job.data)
    return {
        "api_version": API_VERSION,
        "action": verb,
        "name": LABEL,
        "status": outcome.status,
        "user": user_name(),
        "domain": outcome.target.removesuffix(f"/{LABEL}") or None,
        "pid": outcome.pid,
        "file": str(job.path),
        "up_to_date": is_there,
        "message": outcome.told,
        "notes": [*notes, *outcome.notes],
    }


def _print_steps(target: Target, verb: str, job: Job, steps: list[Step]) -> None:
    if not target.json:
        for line in (line for step in steps for line in lines_of(step)):
            click.echo(safe(line, keep="\t"))
        return
    found = {
        "api_version": API_VERSION,
        "action": verb,
        "dry_run": True,
        "name": LABEL,
        "file": str(job.path),
        "plist": job.data.decode(),
        "commands": [shlex.join(step.argv) for step in steps if isinstance(step, Command)],
    }
    click.echo(json.dumps(found, indent=2))


def _print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        click.echo(f"omlxctl: {safe(note)}", err=True)
