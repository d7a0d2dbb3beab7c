"""service: omlxd as a LaunchAgent."""

from __future__ import annotations

import click

from omlxctl.groups import GuessingGroup
from omlxctl.options import daemon_options
from omlxctl.target import Target, pass_target

dry_option = click.option(
    "--dry-run", "dry", is_flag=True, help="Print what would be done, and do nothing."
)


@click.group(cls=GuessingGroup)
@daemon_options
def service() -> None:
    """Have launchd run omlxd: after login, after a crash, at a connection."""


def _verb(name: str, doc: str) -> None:
    @service.command(name, help=doc)
    @dry_option
    @daemon_options
    @pass_target
    def command(target: Target, dry: bool) -> int:
        # Imported only where it is needed: it reads the spec.
        from omlxctl.serviceview import perform

        return perform(target, name, dry=dry)


_verb(
    "install",
    "Give omlxd to launchd, as omlx.toml says now.\n\n"
    "Again after a change of server.listen or server.shutdown_grace. It ends when the daemon "
    "answers.",
)
_verb("uninstall", "Take omlxd from launchd. The home stays as it is.")
_verb("start", "Start the installed service.")
_verb("stop", "Stop it until the next login.")
_verb("restart", "Start another process in place of the running one.")
_verb(
    "status",
    "Say whether it is installed and runs.\n\n"
    "Exit code 0 means that it runs, 3 that it does not, 4 that it is not installed.",
)
