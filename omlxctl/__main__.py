"""argv → exit code."""

from __future__ import annotations

import sys

import click

from omlxctl import exits
from omlxctl.cli import cli
from omlxctl.exits import CtlError


def run(args: list[str]) -> int:
    """Runs one command; what the command returns, or exits with, is its exit code."""
    try:
        result = cli.main(args, prog_name="omlxctl", standalone_mode=False)
    except (click.ClickException, CtlError) as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return exits.INTERRUPTED
    return result if isinstance(result, int) else exits.OK


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
