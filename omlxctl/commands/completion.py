"""completion: what a shell has to load."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

from omlxctl.options import daemon_options
from omlxctl.target import Target


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@daemon_options
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash: eval "$(omlxctl completion bash)"     in ~/.bashrc
    zsh:  eval "$(omlxctl completion zsh)"      in ~/.zshrc
    fish: omlxctl completion fish | source      in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "omlxctl", "_OMLXCTL_COMPLETE").source()
    as_json = ctx.ensure_object(Target).json
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
