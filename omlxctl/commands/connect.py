"""connect: coding agents pointed at omlxd, each in its own form."""

from __future__ import annotations

import click

from omlxctl.options import complete_model, daemon_options
from omlxctl.target import Target, pass_target

CLIENTS = ("claude-code", "codex", "opencode", "openclaw", "copilot", "pi")


@click.command()
@click.argument("client", metavar="CLIENT", type=click.Choice(CLIENTS))
@click.option(
    "--model", metavar="MODEL", shell_complete=complete_model, help="The model it is to use."
)
@click.option("--write", is_flag=True, help="Put it into the client's own files.")
@click.option("--undo", "back", is_flag=True, help="Put those files back as they were.")
@daemon_options
@pass_target
def connect(target: Target, client: str, model: str | None, write: bool, back: bool) -> None:
    """Print what CLIENT needs to use omlxd.

    CLIENT is claude-code, codex, opencode, openclaw, copilot or pi. It is told the address, a key
    where one is asked for, the model, and the model's true limits. Without --model: the only model
    that can chat, the only pinned one, or server.fallback_model.
    """
    # Imported only where it is needed: it reads the spec, and --help and completion must be quick.
    from omlxctl.connectrun import point, put_back

    if back and (write or model):
        raise click.UsageError("--undo goes alone: it puts back what was there")
    if back:
        put_back(target, client)
    else:
        point(target, client, model, write=write)
