"""status, models, requests: what is."""

from __future__ import annotations

from collections.abc import Iterator

import click

from omlxctl.client import Client, decode
from omlxctl.names import model_path
from omlxctl.options import daemon_options, model_argument
from omlxctl.render import request_rows
from omlxctl.statusview import model_lines, model_rows, status_lines
from omlxctl.target import Target, emit, pass_target
from omlxd.control.wire import ModelList, ModelStatus, RequestList, Status


@click.command()
@model_argument(required=False)
@click.option("--watch", is_flag=True, help="Go on with every change.")
@daemon_options
@pass_target
def status(target: Target, model: str | None, watch: bool) -> None:
    """Show the daemon and its models.

    With MODEL, all that is known of that one.
    """
    client = target.client()
    if watch:
        _watch(target, client, model)
        return
    body = client.call("GET", model_path(model) if model else "/v1/status")
    if target.json:
        emit(body)
    elif model:
        click.echo("\n".join(model_lines(decode(body, ModelStatus))))
    else:
        click.echo("\n".join(status_lines(decode(body, Status))))


@click.command()
@daemon_options
@pass_target
def models(target: Target) -> None:
    """List the models that are declared or found."""
    body = target.client().call("GET", "/v1/models")
    if target.json:
        emit(body)
        return
    click.echo("\n".join(model_rows(decode(body, ModelList).models)))


@click.command()
@daemon_options
@pass_target
def requests(target: Target) -> None:
    """List the requests that have not ended."""
    body = target.client().call("GET", "/v1/requests")
    if target.json:
        emit(body)
        return
    running = decode(body, RequestList).requests
    click.echo("\n".join(request_rows(running)) if running else "no requests")


def _watch(target: Target, client: Client, model: str | None) -> None:
    name = client.get(model_path(model), ModelStatus).id if model else None
    snapshots = client.lines("/v1/status?watch=1")
    if target.json:
        for line in snapshots:
            emit(line if name is None else _only(line, name))
        return
    from omlxctl.screen import show_frames

    show_frames(_frames(snapshots, name))


def _frames(snapshots: Iterator[bytes], name: str | None) -> Iterator[str]:
    for line in snapshots:
        snapshot = decode(line, Status)
        if name is None:
            yield "\n".join(status_lines(snapshot))
        else:
            yield "\n".join(row for m in snapshot.models if m.id == name for row in model_lines(m))


def _only(line: bytes, name: str) -> bytes:
    """The one model out of a snapshot, as JSON again."""
    import msgspec

    models = msgspec.json.decode(line)["models"]
    return msgspec.json.encode(next((m for m in models if m["id"] == name), None))
