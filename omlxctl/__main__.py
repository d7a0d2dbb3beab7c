"""argv → exit code."""

from __future__ import annotations

import os
import sys

import click

from omlxctl import exits
from omlxctl.cli import cli
from omlxctl.exits import CtlError


def run(args: list[str]) -> int:
    """Runs one command; a command's own int is its exit code."""
    try:
        result = cli.main(args, prog_name="omlxctl", standalone_mode=False)
        sys.stdout.flush()
    except (click.ClickException, CtlError) as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; what is still buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.INTERRUPTED
    return result if isinstance(result, int) else exits.OK


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
