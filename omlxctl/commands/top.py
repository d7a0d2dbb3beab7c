"""top: memory, models and requests, redrawn as they change."""

from __future__ import annotations

from collections.abc import Iterator

import click

from omlxctl.client import Client, decode
from omlxctl.options import daemon_options
from omlxctl.render import request_rows
from omlxctl.screen import show_frames
from omlxctl.statusview import status_lines
from omlxctl.target import Target, emit, pass_target
from omlxd.control.wire import RequestList, Status


@click.command()
@daemon_options
@pass_target
def top(target: Target) -> None:
    """Watch memory, models and running requests."""
    client = target.client()
    if target.json:
        for line in client.lines("/v1/status?watch=1"):
            emit(line)
        return
    show_frames(_frames(client))


def _frames(client: Client) -> Iterator[str]:
    for line in client.lines("/v1/status?watch=1"):
        running = client.get("/v1/requests", RequestList).requests
        lines = [*status_lines(decode(line, Status)), "", *request_rows(running)]
        yield "\n".join(lines)
