"""why: what the prefix cache did for a request."""

from __future__ import annotations

from urllib.parse import quote

import click

from omlxctl.client import decode
from omlxctl.options import daemon_options
from omlxctl.target import Target, emit, pass_target
from omlxctl.whyview import why_lines
from omlxd.control.cache_wire import RequestWhy


@click.command()
@click.argument("request_id")
@daemon_options
@pass_target
def why(target: Target, request_id: str) -> None:
    """Explain what was reused for REQUEST_ID, and why not more.

    REQUEST_ID is one of the last requests: the id in the log, in the x-request-id header, or of
    the response.
    """
    body = target.client().call("GET", f"/v1/requests/{quote(request_id, safe='')}/why")
    if target.json:
        emit(body)
    else:
        click.echo("\n".join(why_lines(decode(body, RequestWhy))))
