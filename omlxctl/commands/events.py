"""events: what happened."""

from __future__ import annotations

import click

from omlxctl.client import decode
from omlxctl.options import daemon_options
from omlxctl.render import event_line
from omlxctl.target import Target, emit, pass_target
from omlxd.control.wire import Event


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with events as they come.")
@daemon_options
@pass_target
def events(target: Target, follow: bool) -> None:
    """Show past events, oldest first."""
    for line in target.client().lines(f"/v1/events?follow={int(follow)}"):
        if target.json:
            emit(line)
        else:
            click.echo(event_line(decode(line, Event)))
