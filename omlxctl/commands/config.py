"""config show, path, schema."""

from __future__ import annotations

import json

import click

from omlxctl.client import decode
from omlxctl.groups import GuessingGroup
from omlxctl.options import daemon_options
from omlxctl.target import Target, emit, pass_target
from omlxd.control.wire import ConfigView


@click.group(cls=GuessingGroup)
@daemon_options
def config() -> None:
    """Show what is configured, and where."""


@config.command()
@click.option("--origin", is_flag=True, help="Name the file and line of every value.")
@daemon_options
@pass_target
def show(target: Target, origin: bool) -> None:
    """Show every value in force."""
    from omlxctl.render import config_lines

    body = target.client().call("GET", "/v1/config")
    if target.json:
        emit(body)
        return
    click.echo("\n".join(config_lines(decode(body, ConfigView).values, origin=origin)))


@config.command()
@daemon_options
@pass_target
def path(target: Target) -> None:
    """Print the path of omlx.toml."""
    main = str(target.config_path())
    click.echo(json.dumps({"path": main}) if target.json else main)


@config.command()
@daemon_options
def schema() -> None:
    """Print the JSON Schema of omlx.toml, for editors."""
    from omlxd.spec.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
