"""Which daemon a command talks to, and how it prints; filled by options before the command runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from omlxctl.client import Client, NotRunning
from omlxctl.exits import CtlError
from omlxd.control.wire import Status


@dataclass(slots=True)
class Target:
    home: Path | None = None
    socket: Path | None = None
    json: bool = False
    _client: Client | None = None

    def socket_path(self) -> Path:
        return self.socket or self.home_path() / "run" / "omlxd.sock"

    def home_path(self) -> Path:
        """--home, else the home that --socket lies in (HOME/run), else OMLX_HOME, else ~/.omlx."""
        if self.home is not None:
            return self.home
        if self.socket is not None:
            return self.socket.absolute().parent.parent
        return Path(os.environ.get("OMLX_HOME") or "~/.omlx").expanduser()

    def client(self) -> Client:
        """One for the whole command."""
        if self._client is None:
            self._client = Client(self.socket_path())
        return self._client

    def config_path(self) -> Path:
        """omlx.toml: a running daemon says, as it may follow another one; else the home's."""
        try:
            return Path(self.client().get("/v1/status", Status).config.path)
        except NotRunning:
            return self.home_path() / "omlx.toml"


pass_target = click.make_pass_decorator(Target)


def emit(body: bytes) -> None:
    """The daemon's JSON, unchanged."""
    click.echo(body.rstrip(b"\n") + b"\n", nl=False)


def read_stdin() -> str:
    """All of standard input as UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CtlError(f"cannot read standard input: {error}") from error


def is_terminal() -> bool:
    """Whether standard output can redraw in place."""
    return os.isatty(1) and os.environ.get("TERM", "dumb") != "dumb"
