"""Exit codes, and the error that carries one. Scripts depend on these numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from omlxd.spec.report import Problem

OK = 0
FAILED = 1  # or: differs (`diff`)
USAGE = 2
NOT_RUNNING = 3
NO_SUCH_OBJECT = 4
TIMED_OUT = 5
CONFLICT = 6
INVALID = 7
INTERRUPTED = 130

LINES = "\n\t"  # layout that a message may have

# The daemon's refusals by HTTP status; what is not here is FAILED.
BY_STATUS = {400: USAGE, 404: NO_SUCH_OBJECT, 409: CONFLICT, 422: INVALID, 504: TIMED_OUT}


class CtlError(Exception):
    """Ends the command: one sentence on stderr, a hint what to do next, and the exit code."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: int = FAILED,
        hint: str = "",
        problems: Sequence[Problem] = (),
        texts: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.hint = hint
        self.problems = tuple(problems)
        self.texts = texts or {}  # of the files that problems name, where they are at hand

    def show(self) -> None:
        from omlxctl.render import problem_lines
        from omlxctl.text import safe

        click.echo(f"omlxctl: {safe(self.message, keep=LINES)}", err=True)
        for problem in self.problems:
            click.echo("\n".join(problem_lines(problem, self.texts)), err=True)
        if self.hint:
            click.echo(f"  {safe(self.hint, keep=LINES)}", err=True)
