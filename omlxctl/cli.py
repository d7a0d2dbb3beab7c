"""The command tree. A command's module is imported when the command is named, not before."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from omlxctl import exits
from omlxctl.groups import GuessingGroup
from omlxctl.options import daemon_options
from omlxd import __version__

# Name → module and attribute under omlxctl.commands, in the order of `omlxctl --help`.
COMMANDS = {
    "status": "status:status",
    "models": "status:models",
    "requests": "status:requests",
    "top": "top:top",
    "pin": "models:pin",
    "unpin": "models:unpin",
    "load": "models:load",
    "unload": "models:unload",
    "set": "models:set_",
    "unset": "models:unset",
    "validate": "files:validate",
    "diff": "files:diff",
    "apply": "files:apply",
    "reload": "files:reload",
    "config": "config:config",
    "wait": "wait:wait",
    "events": "events:events",
    "logs": "logs:logs",
    "cache": "cache:cache",
    "why": "why:why",
    "chat": "chat:chat",
    "connect": "connect:connect",
    "service": "service:service",
    "completion": "completion:completion",
}

EPILOG = """\b
Exit codes: 0 ok; 1 failed, or differs (diff); 2 usage; 3 daemon not running;
4 no such object; 5 timed out; 6 conflict; 7 configuration invalid."""


class LazyGroup(GuessingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command = getattr(import_module(f"omlxctl.commands.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Ctrl-C, and a reader that has enough, end a command without a word."""
        try:
            result: object = super().invoke(ctx)
            if sys.stdout is not None:  # it may be closed
                sys.stdout.flush()
        except KeyboardInterrupt:
            ctx.exit(exits.INTERRUPTED)
        except BrokenPipeError:
            # What is still buffered must not be tried again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(exits.INTERRUPTED)
        return result


def _no_color() -> bool | None:
    """False turns colour off; None leaves it to the stream (a terminal has it)."""
    off = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return False if off else None


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "color": _no_color()},
)
@click.version_option(__version__, message="omlxctl %(version)s")
def cli() -> None:
    """Look at and steer omlxd, the daemon that serves local models."""


daemon_options(cli)
