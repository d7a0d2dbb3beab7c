"""argv → exit code."""

from __future__ import annotations

import errno
import os
import sys

import click

from omlxctl import exits
from omlxctl.cli import cli
from omlxctl.exits import CtlError

# Of output that goes to a file or a device; an error about a file of ours names it.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def run(args: list[str]) -> int:
    """Runs one command; what the command returns, or exits with, is its exit code."""
    try:
        result = cli.main(args, prog_name="omlxctl", standalone_mode=False)
    except (click.ClickException, CtlError) as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return exits.INTERRUPTED
    except OSError as error:
        if error.errno not in _NOT_WRITTEN or error.filename is not None:
            raise
        # What is still buffered must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"omlxctl: cannot write to standard output: {error.strerror}", err=True)
        return exits.FAILED
    return result if isinstance(result, int) else exits.OK


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
